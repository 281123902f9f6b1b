// SPDX-License-Identifier: Apache-2.0
#include "trainer/prepare/image_set.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <system_error>
#include <thread>

#include "trainer/base/files.hpp"
#include "trainer/base/random.hpp"
#include "trainer/base/sha256.hpp"
#include "trainer/data/image_arrays.hpp"
#include "trainer/images/image.hpp"
#include "trainer/prepare/made_once.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

constexpr auto kLongestCountingImages = std::chrono::seconds(10);  // of what is refused anyway
constexpr auto kLongestConverting = std::chrono::hours(24);
constexpr std::size_t kPicturesAtOnce = 256;  // decoded before they are written
constexpr std::size_t kMostDecoders = 16;     // threads: each may have an image of kMostImagePixels

constexpr std::string_view kImageTypes = "|u1 <f4 <f8";
constexpr std::string_view kMaskTypes = "|b1 |u1 |i1 <u2 <i2 <u4 <i4 <i8 <f4 <f8";

// A row of the arrays.
struct ImageRow {
    std::vector<std::uint8_t> image, target;
    std::uint8_t mask_value = 0;  // of the pixels that are not 0, in the mask as it was
};

std::size_t cpus() {
    cpu_set_t mine;
    return sched_getaffinity(0, sizeof mine, &mine) == 0 ? static_cast<std::size_t>(CPU_COUNT(&mine)) : 1;
}

template <typename Stored>
double number_at(const std::uint8_t* bytes) {
    Stored number;
    std::memcpy(&number, bytes, sizeof number);
    return static_cast<double>(number);
}

using NumberAt = double (*)(const std::uint8_t*);
NumberAt reader_of(const std::string& type) {
    static const std::map<std::string, NumberAt> kReaders{
        {"|b1", number_at<std::uint8_t>}, {"|u1", number_at<std::uint8_t>},
        {"|i1", number_at<std::int8_t>},  {"<u2", number_at<std::uint16_t>},
        {"<i2", number_at<std::int16_t>}, {"<u4", number_at<std::uint32_t>},
        {"<i4", number_at<std::int32_t>}, {"<i8", number_at<std::int64_t>},
        {"<f4", number_at<float>},        {"<f8", number_at<double>}};
    return kReaders.at(type);
}

// Arrays that are rows of images or masks, opened once.
class OpenArrays {
 public:
    Try<const NpyFile*> open(const fs::path& file, std::string_view types) {
        if (const auto there = opened_.find(file.string()); there != opened_.end()) return &there->second;
        auto opened = DP_TRY(open_npy_array(file, types));
        return &opened_.emplace(file.string(), std::move(opened)).first->second;
    }

 private:
    std::map<std::string, NpyFile> opened_;
};

// The numbers of an image or mask, [height, width, channels].
struct Numbers {
    std::int64_t height = 0, width = 0, channels = 1;
    std::string type;
    std::vector<std::uint8_t> bytes;

    std::size_t count() const { return static_cast<std::size_t>(height * width * channels); }
    // One number after the other.
    Try<void> each(auto take) const {
        const NumberAt read = reader_of(type);
        const auto step = static_cast<std::size_t>(type.back() - '0');
        for (std::size_t i = 0; i < count(); ++i) DP_TRY(take(i, read(bytes.data() + i * step)));
        return {};
    }
};

// `shape`: of one image, without the number of images.
Try<Numbers> numbers_of(const NpyFile& file, std::span<const std::int64_t> shape, std::int64_t row) {
    if (shape.size() < 2 || shape.size() > 3) return dp::fail("its shape is not (H, W) or (H, W, C)");
    Numbers numbers{shape[0], shape[1], shape.size() == 3 ? shape[2] : 1, file.array.type, {}};
    DP_TRY(check_sides(numbers.width, numbers.height));
    if (numbers.channels != 1 && numbers.channels != 3 && numbers.channels != 4)
        return dp::fail(
            fmt::format("it has {} channels; 1, 3 or 4 (the last is transparency) come last in its shape",
                        numbers.channels));
    const auto bytes = static_cast<std::int64_t>(numbers.count()) * (file.array.type.back() - '0');
    numbers.bytes.resize(static_cast<std::size_t>(bytes));
    DP_TRY(read_at(file.file, file.array.bytes + row * bytes, numbers.bytes.data(), numbers.bytes.size()));
    return numbers;
}

// Bytes as they are; floating point from 0 to 1.
Try<Image> image_of(const Numbers& numbers) {
    const bool is_fraction = numbers.type[1] == 'f';
    const std::int64_t kept = numbers.channels == 4 ? 3 : numbers.channels;
    Image image{numbers.width, numbers.height, kept, {}};
    image.pixels.reserve(numbers.count());
    DP_TRY(numbers.each([&](std::size_t i, double number) -> Try<void> {
        if (is_fraction && !(number >= 0 && number <= 1))
            return dp::fail(fmt::format("it has {}, and floating-point images have 0 to 1", number));
        if (static_cast<std::int64_t>(i) % numbers.channels < kept)
            image.pixels.push_back(
                static_cast<std::uint8_t>(is_fraction ? std::lround(number * 255) : number));
        return {};
    }));
    return image;
}

// Of one channel, 0 and 1; and the value that was 1.
struct Mask {
    Image pixels;
    std::uint8_t value = 0;
};
Try<Mask> mask_of(const Image& image) {
    if (image.channels != 1) return dp::fail("its mask is coloured, and masks have one channel");
    Mask mask{image, 0};
    for (std::uint8_t& pixel : mask.pixels.pixels) {
        if (pixel != 0 && mask.value != 0 && pixel != mask.value)
            return dp::fail(fmt::format("its mask has {} and {} beside 0, and unet2d finds one class",
                                        mask.value, pixel));
        if (pixel != 0) mask.value = pixel;
        pixel = pixel != 0 ? 1 : 0;
    }
    return mask;
}
Try<Mask> mask_of(const Numbers& numbers) {
    if (numbers.channels != 1) return dp::fail("its mask has several channels, and masks have one");
    Image image{numbers.width, numbers.height, 1, {}};
    image.pixels.reserve(numbers.count());
    DP_TRY(numbers.each([&](std::size_t, double number) -> Try<void> {
        if (!(number >= 0 && number <= 255) || number != std::floor(number))
            return dp::fail(
                fmt::format("its mask has {}, and masks have whole numbers from 0 to 255", number));
        image.pixels.push_back(static_cast<std::uint8_t>(number));
        return {};
    }));
    return mask_of(image);
}

Try<std::vector<std::uint8_t>> bytes_of_picture(const fs::path& file) {
    const auto opened = open_regular(file);
    if (!opened) return dp::fail(opened.error().message);
    struct stat facts {};
    if (::fstat(opened->get(), &facts) != 0) return dp::fail("cannot read");
    if (facts.st_size > kLargestImageFile)
        return dp::fail(
            fmt::format("its file has {} bytes, and at most {} are read", facts.st_size, kLargestImageFile));
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(facts.st_size));
    DP_TRY(read_at(*opened, 0, bytes.data(), bytes.size()));
    return bytes;
}

// Reads pictures, and brings them to the model's channels and size.
class PictureReader {
 public:
    PictureReader(const ImageSet& set, const ImageFacts& facts) : set_(set), facts_(facts) {}

    // Before threads read: the arrays of rows.
    Result<void> open_arrays() {
        for (const auto* part : {&set_.train, &set_.test}) {
            if (part->empty() || part->front().row < 0) continue;
            const fs::path images_file = set_.where / part->front().image,
                           masks_file = set_.where / part->front().mask;
            const auto images = arrays_.open(images_file, kImageTypes),
                       masks = arrays_.open(masks_file, kMaskTypes);
            if (!images) return fail(Fault::usage, "{}: {}", images_file.string(), images.error().message);
            if (!masks) return fail(Fault::usage, "{}: {}", masks_file.string(), masks.error().message);
            if ((*masks)->rows() != (*images)->rows() || (*masks)->array.shape.size() < 3)
                return fail(Fault::usage, "{}: {} masks for the {} images of images.npy, or not (N, H, W)",
                            masks_file.string(), (*masks)->rows(), (*images)->rows());
        }
        return {};
    }

    Try<ImageRow> read(const Picture& picture) {
        const Image image = DP_TRY(read_image(picture));
        ImageRow row;
        if (facts_.set == DataSet::segmentation) {
            const Mask mask = DP_TRY(read_mask(picture));
            if (mask.pixels.width != image.width || mask.pixels.height != image.height)
                return dp::fail(fmt::format("its mask has {} x {} pixels, and it has {} x {}",
                                            mask.pixels.width, mask.pixels.height, image.width,
                                            image.height));
            row.target = resized_to_nearest(mask.pixels, facts_.side, facts_.side).pixels;
            row.mask_value = mask.value;
        } else {
            row.target.resize(sizeof picture.label);
            std::memcpy(row.target.data(), &picture.label, sizeof picture.label);
        }
        const Image right = facts_.channels == 1 ? grey(image) : coloured(image);
        row.image = planes(resized(right, facts_.side, facts_.side));
        return row;
    }

 private:
    const ImageSet& set_;
    const ImageFacts& facts_;
    OpenArrays arrays_;

    Try<Numbers> read_numbers(const std::string& name, std::int64_t row, std::string_view types) {
        if (row >= 0) {
            const NpyFile* array = DP_TRY(arrays_.open(set_.where / name, types));
            return numbers_of(*array, std::span(array->array.shape).subspan(1), row);
        }
        const NpyFile one = DP_TRY(open_npy_array(set_.where / name, types));
        return numbers_of(one, one.array.shape, 0);
    }
    static bool is_array(const std::string& name) { return name.ends_with(".npy"); }

    Try<Image> read_image(const Picture& picture) {
        if (is_array(picture.image)) {
            const auto numbers = DP_TRY(read_numbers(picture.image, picture.row, kImageTypes));
            return image_of(numbers);
        }
        const auto bytes = DP_TRY(bytes_of_picture(set_.where / picture.image));
        return decode_image(bytes);
    }
    Try<Mask> read_mask(const Picture& picture) {
        if (picture.mask.empty()) return dp::fail("there is no mask of that name");
        if (is_array(picture.mask)) {
            const auto numbers = DP_TRY(read_numbers(picture.mask, picture.row, kMaskTypes));
            return mask_of(numbers);
        }
        const auto bytes = DP_TRY(bytes_of_picture(set_.where / picture.mask));
        // JPEG would change the values.
        if (bytes.size() > 1 && bytes[0] == 0xff && bytes[1] == 0xd8)
            return dp::fail("its mask is JPEG, which does not keep its values; give PNG or NumPy's .npy");
        const Image image = DP_TRY(decode_image(bytes));
        return mask_of(image);
    }
};

// Reads the pictures of a set and writes the arrays.
class Converting {
 public:
    Converting(const ImageSet& set, const DataRequest& request, fs::path directory)
        : set_(set), request_(request), directory_(std::move(directory)), reader_(set_, facts_) {
        const bool masks = set.set == DataSet::segmentation;
        facts_ = {set.set, masks ? 3 : 1, masks ? request.image_size : kImageSide, set.classes};
    }

    Result<std::string> run() {
        DP_TRY(reader_.open_arrays());
        auto [train, test] = DP_TRY(parts());
        const auto trains = DP_TRY(write_part("train", train));
        const auto tests = DP_TRY(write_part("val", test));
        if (!bad_names_.empty() && request_.bad_samples == BadSamples::refuse)
            return fail(Fault::usage,
                        "{}; correct it, or give --bad-samples=skip to leave out {}{} of {} images",
                        first_bad_, has_stopped_ ? "at least " : "", bad_names_.size(),
                        trains + tests + count_of_bad());
        for (const auto& [count, purpose] : {std::pair(trains, "train on"), std::pair(tests, "test with")})
            if (count == 0)
                return fail(Fault::usage, "{}: no image there to {}{}", set_.where.string(), purpose,
                            bad_names_.empty() ? ""
                                               : fmt::format("; {} were skipped, the first: {}",
                                                             bad_names_.size(), first_bad_));
        if (!bad_names_.empty())
            DP_TRY(write_file(directory_ / "skipped.list", fmt::format("{}\n", fmt::join(bad_names_, "\n"))));
        if (facts_.set == DataSet::fashion_mnist)
            facts_.normalise = normalisation_of(sum_, squares_, pixels_);
        DP_TRY(write_image_facts(directory_, facts_));
        std::string summary =
            fmt::format("{} images to train and {} to test with, as {} of {} x {} pixels", trains, tests,
                        facts_.channels == 1 ? "grey" : "colours", facts_.side, facts_.side);
        if (facts_.set == DataSet::fashion_mnist)
            summary +=
                fmt::format(", {} classes: {}", facts_.classes.size(), fmt::join(facts_.classes, ", "));
        if (!bad_names_.empty())
            summary += fmt::format("; {} skipped, the first: {}", bad_names_.size(), first_bad_);
        return summary;
    }

 private:
    const ImageSet& set_;
    const DataRequest& request_;
    fs::path directory_;
    ImageFacts facts_;
    PictureReader reader_;
    std::vector<std::string> bad_names_;
    std::string first_bad_;
    std::chrono::steady_clock::time_point first_bad_at_;
    bool has_stopped_ = false;
    std::optional<std::uint8_t> mask_value_;
    std::uint64_t sum_ = 0, squares_ = 0, pixels_ = 0;  // of the training images

    std::int64_t count_of_bad() const { return static_cast<std::int64_t>(bad_names_.size()); }

    // Shuffled, so that a part of them has something of everything.
    static std::vector<Picture> shuffled(std::vector<Picture> pictures) {
        Random random(1, 0);
        for (auto left = static_cast<std::uint32_t>(pictures.size()); left > 1; --left)
            std::swap(pictures[left - 1], pictures[random.below(left)]);
        return pictures;
    }

    Result<std::pair<std::vector<Picture>, std::vector<Picture>>> parts() {
        auto train = shuffled(set_.train);
        if (request_.split && !set_.test_name.empty())
            return fail(Fault::usage, "{}: {} is there to test with; leave out --data-split, or rename it",
                        set_.where.string(), set_.test_name);
        if (!set_.test_name.empty()) return std::pair(std::move(train), set_.test);
        const auto all = static_cast<double>(train.size());
        const auto share = request_.split.value_or(TrainTestRest{19, 1, 0});
        const double whole = share.train + share.test + share.rest;
        const auto until = [&](double part) {
            return std::min(train.size(), static_cast<std::size_t>(std::lround(all * part / whole)));
        };
        const auto trains = std::min(until(share.train), train.size() - 1);
        const auto tests = std::max<std::size_t>(until(share.train + share.test), trains + 1);
        std::vector<Picture> test(train.begin() + static_cast<std::ptrdiff_t>(trains),
                                  train.begin() + static_cast<std::ptrdiff_t>(tests));
        train.resize(trains);
        return std::pair(std::move(train), std::move(test));
    }

    Result<std::int64_t> write_part(const std::string& part, const std::vector<Picture>& pictures) {
        auto writer = DP_TRY(ImageArrayWriter::create(directory_, part, facts_));
        std::vector<Try<ImageRow>> rows;
        std::int64_t good = 0;
        for (std::size_t first = 0; first < pictures.size() && !stops(); first += rows.size()) {
            const auto some =
                std::span(pictures).subspan(first, std::min(kPicturesAtOnce, pictures.size() - first));
            rows = read_all(some);
            for (std::size_t i = 0; i < rows.size(); ++i) {
                auto& row = rows[i];
                if (row && !is_same_class(*row))
                    row = dp::fail(fmt::format("its mask has {}, and others have {}: unet2d finds one class",
                                               row->mask_value, *mask_value_));
                if (!row) {
                    note_bad(some[i], row.error().message);
                    continue;
                }
                ++good;
                if (request_.bad_samples == BadSamples::refuse && !bad_names_.empty())
                    continue;  // only counted
                if (part == "train") add_pixels(row->image);
                DP_TRY(writer.add(row->image, row->target));
            }
        }
        DP_TRY(writer.finish());
        return good;
    }

    std::vector<Try<ImageRow>> read_all(std::span<const Picture> pictures) {
        std::vector<Try<ImageRow>> rows(pictures.size(), ImageRow{});
        std::atomic<std::size_t> next = 0;
        const auto work = [&] {
            for (std::size_t i = next++; i < pictures.size(); i = next++) {
                try {
                    rows[i] = reader_.read(pictures[i]);
                } catch (const std::exception& error) {  // no memory
                    rows[i] = dp::fail(error.what());
                }
            }
        };
        std::vector<std::thread> others;
        others.reserve(kMostDecoders);
        try {
            for (std::size_t i = 1; i < std::min({cpus(), kMostDecoders, pictures.size()}); ++i)
                others.emplace_back(work);
        } catch (const std::system_error&) {  // as many as may be
        }
        work();
        for (auto& other : others) other.join();
        return rows;
    }

    bool is_same_class(const ImageRow& row) {
        if (row.mask_value != 0 && !mask_value_) mask_value_ = row.mask_value;
        return row.mask_value == 0 || row.mask_value == *mask_value_;
    }

    void add_pixels(const std::vector<std::uint8_t>& image) {
        for (const std::uint64_t pixel : image) {
            sum_ += pixel;
            squares_ += pixel * pixel;
        }
        pixels_ += image.size();
    }

    // Where images are refused, the others are only looked at to count those, and not for long.
    bool stops() {
        if (request_.bad_samples == BadSamples::skip || bad_names_.empty()) return false;
        if (std::chrono::steady_clock::now() - first_bad_at_ > kLongestCountingImages) has_stopped_ = true;
        return has_stopped_;
    }

    void note_bad(const Picture& picture, const std::string& why) {
        std::string name = (set_.where / picture.image).string();
        if (picture.row >= 0) name += fmt::format("[{}]", picture.row);
        if (bad_names_.empty()) {
            first_bad_ = fmt::format("{}: {}", name, why);
            first_bad_at_ = std::chrono::steady_clock::now();
        }
        bad_names_.push_back(std::move(name));
    }
};

// What determines the arrays, without reading the pictures.
std::string identity_of_images(const ImageSet& set, const DataRequest& request) {
    std::error_code ignored;
    Sha256 sha;
    const auto add = [&](const std::string& text) { sha.update(text.c_str(), text.size() + 1); };
    add(fs::weakly_canonical(set.where, ignored).string());
    const TrainTestRest split = request.split.value_or(TrainTestRest{});
    add(fmt::format("1 {} {} {} {} {} {}", static_cast<int>(set.set), request.bad_samples == BadSamples::skip,
                    set.set == DataSet::segmentation ? request.image_size : kImageSide, split.train,
                    split.test, split.rest));
    const auto add_file = [&](const std::string& name) {
        struct stat facts {};
        if (name.empty() || ::stat((set.where / name).c_str(), &facts) != 0) return add(name);
        add(fmt::format("{} {} {} {}", name, facts.st_size, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec));
    };
    for (const auto* part : {&set.train, &set.test}) {
        for (const Picture& picture : *part) {
            if (picture.row > 0) continue;  // of the same two files
            add_file(picture.image);
            add_file(picture.mask);
        }
        add("and");
    }
    return hex_of(sha.digest());
}

}  // namespace

Result<ConvertedImages> convert_images(const ImageSet& images, const DataRequest& request,
                                       const fs::path& cache) {
    try {
        const std::string identity = identity_of_images(images, request);
        const fs::path directory = cache / ("images-" + identity);
        const auto make = [&](const fs::path& result) { return Converting(images, request, result).run(); };
        const auto summary = DP_TRY(made_once(directory, identity, make, kLongestConverting));
        return ConvertedImages{
            directory, fmt::format("{}: {}; kept in {}", images.where.string(), summary, directory.string())};
    } catch (const fs::filesystem_error& error) {
        return fail(Fault::prepare, error.what());
    }
}

}  // namespace dp::trainer
