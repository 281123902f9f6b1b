// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/image_arrays.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "trainer/base/files.hpp"
#include "trainer/data/npy.hpp"
#include "trainer/data/stored_images.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little,
              "labels are read and written as they lie in memory");

bool has_masks(const ImageFacts& facts) {
    return facts.set == DataSet::segmentation;
}

fs::path images_in(const fs::path& directory, std::string_view part) {
    return directory / fmt::format("{}_images.npy", part);
}
fs::path targets_in(const fs::path& directory, std::string_view part, bool masks) {
    return directory / fmt::format("{}_{}.npy", part, masks ? "masks" : "labels");
}

tl::unexpected<Error> damaged(const fs::path& file, const std::string& why) {
    return fail(Fault::usage, "{}: {}; remove the directory, and give the images themselves as --data-dir",
                file.string(), why);
}

// The numbers of the header, once all rows are there.
Result<void> write_header(const fs::path& file, const std::string& header) {
    const Fd again(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
    if (!again ||
        ::pwrite(again.get(), header.data(), header.size(), 0) != static_cast<ssize_t>(header.size()) ||
        ::fsync(again.get()) != 0)
        return fail_with_errno(Fault::prepare, file.string());
    return {};
}

Result<NpyFile> open_array(const fs::path& file, std::string_view type,
                           const std::vector<std::int64_t>& row) {
    auto opened = open_npy_array(file, type);
    if (!opened) return damaged(file, opened.error().message);
    if (opened->array.shape.empty() ||
        !std::equal(row.begin(), row.end(), opened->array.shape.begin() + 1, opened->array.shape.end()))
        return damaged(file, fmt::format("its rows are not {} numbers each", fmt::join(row, " x ")));
    return std::move(*opened);
}

Result<std::vector<std::uint8_t>> read_all_rows(const fs::path& path, const NpyFile& opened) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(opened.rows() * opened.row_bytes()));
    if (const auto read = read_at(opened.file, opened.array.bytes, bytes.data(), bytes.size()); !read)
        return damaged(path, read.error().message);
    return bytes;
}

Result<void> check_labels(const fs::path& file, std::span<const std::uint8_t> bytes, std::size_t classes) {
    for (std::size_t i = 0; i + sizeof(std::int32_t) <= bytes.size(); i += sizeof(std::int32_t)) {
        std::int32_t label = 0;
        std::copy_n(bytes.data() + i, sizeof label, reinterpret_cast<std::uint8_t*>(&label));
        if (label < 0 || static_cast<std::size_t>(label) >= classes)
            return damaged(file, fmt::format("its label {} is none of {} classes", label, classes));
    }
    return {};
}

// Pieces of a file, for the fingerprint.
Result<void> add_spread(const fs::path& path, const NpyFile& opened, std::vector<std::uint8_t>& spread) {
    for (const auto& [at, bytes] : pieces_of(opened.rows() * opened.row_bytes(), true)) {
        const auto there = spread.size();
        spread.resize(there + static_cast<std::size_t>(bytes));
        if (const auto read = read_at(opened.file, opened.array.bytes + at, spread.data() + there,
                                      static_cast<std::size_t>(bytes));
            !read)
            return damaged(path, read.error().message);
    }
    return {};
}

Result<Split> load_image_part(const fs::path& directory, std::string_view part, const ImageFacts& facts) {
    const bool masks = has_masks(facts);
    const fs::path images_file = images_in(directory, part),
                   targets_file = targets_in(directory, part, masks);
    const std::int64_t side = facts.side;
    auto images = DP_TRY(open_array(images_file, "|u1", {facts.channels, side, side}));
    auto targets = DP_TRY(open_array(targets_file, masks ? "|u1" : "<i4",
                                     masks ? std::vector{side, side} : std::vector<std::int64_t>{}));
    if (images.rows() != targets.rows() || images.rows() < 1)
        return damaged(targets_file, fmt::format("{} targets for {} images", targets.rows(), images.rows()));
    Split samples;
    samples.count = images.rows();
    samples.normalise = facts.normalise;
    samples.features = {Type::u8, images.row_bytes(), {}};
    samples.targets = {masks ? Type::u8 : Type::i32, masks ? targets.row_bytes() : 1, {}};
    const std::int64_t bytes = samples.count * (images.row_bytes() + targets.row_bytes());
    if (!masks) {  // few bytes, of which a wrong one would be read beyond the model's outputs
        const auto labels = DP_TRY(read_all_rows(targets_file, targets));
        DP_TRY(check_labels(targets_file, labels, facts.classes.size()));
    }
    if (bytes <= kMostHeld) {
        samples.features.bytes = DP_TRY(read_all_rows(images_file, images));
        samples.targets.bytes = DP_TRY(read_all_rows(targets_file, targets));
        return samples;
    }
    StreamedRows streamed;
    streamed.bytes = bytes;
    DP_TRY(add_spread(images_file, images, streamed.spread));
    DP_TRY(add_spread(targets_file, targets, streamed.spread));
    const std::int64_t image_row = images.row_bytes(), target_row = targets.row_bytes();
    streamed.images = std::make_shared<const StoredImages>(
        StoredRows{images_file, std::move(images.file), images.array.bytes, image_row},
        StoredRows{targets_file, std::move(targets.file), targets.array.bytes, target_row});
    samples.streamed = std::move(streamed);
    return samples;
}

}  // namespace

Result<void> write_image_facts(const fs::path& directory, const ImageFacts& facts) {
    const nlohmann::ordered_json json{{"targets", has_masks(facts) ? "masks" : "classes"},
                                      {"channels", facts.channels},
                                      {"side", facts.side},
                                      {"classes", facts.classes},
                                      {"scale", facts.normalise.scale},
                                      {"shift", facts.normalise.shift}};
    return write_file(directory / kImagesFile,
                      json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

Result<ImageFacts> read_image_facts(const fs::path& directory) {
    const fs::path file = directory / kImagesFile;
    const auto text = DP_TRY(read_file(file));
    try {
        const auto json = nlohmann::json::parse(text);
        ImageFacts facts;
        facts.set = json.at("targets") == "masks" ? DataSet::segmentation : DataSet::fashion_mnist;
        facts.channels = json.at("channels");
        facts.side = json.at("side");
        facts.classes = json.at("classes").get<std::vector<std::string>>();
        facts.normalise = {json.at("scale"), json.at("shift")};
        return facts;
    } catch (const nlohmann::json::exception&) {
        return damaged(file, "it is not what this trainer writes");
    }
}

ImageArrayWriter::ImageArrayWriter(fs::path images_file, fs::path targets_file, ImageFacts facts,
                                   DurableFile images, DurableFile targets)
    : images_file_(std::move(images_file)),
      targets_file_(std::move(targets_file)),
      facts_(std::move(facts)),
      images_(std::move(images)),
      targets_(std::move(targets)) {}

Result<ImageArrayWriter> ImageArrayWriter::create(const fs::path& directory, std::string_view part,
                                                  const ImageFacts& facts) {
    fs::path images_file = images_in(directory, part),
             targets_file = targets_in(directory, part, has_masks(facts));
    auto images = DP_TRY(DurableFile::create(images_file, Fault::prepare));
    auto targets = DP_TRY(DurableFile::create(targets_file, Fault::prepare));
    const std::string later(kNpyHeader, ' ');
    DP_TRY(images.write(later.data(), later.size()));
    DP_TRY(targets.write(later.data(), later.size()));
    return ImageArrayWriter(std::move(images_file), std::move(targets_file), facts, std::move(images),
                            std::move(targets));
}

Result<void> ImageArrayWriter::add(std::span<const std::uint8_t> image,
                                   std::span<const std::uint8_t> target) {
    ++count_;
    DP_TRY(images_.write(image.data(), image.size()));
    return targets_.write(target.data(), target.size());
}

Result<void> ImageArrayWriter::finish() {
    DP_TRY(images_.finish());
    DP_TRY(targets_.finish());
    const std::int64_t side = facts_.side;
    DP_TRY(write_header(images_file_, npy_header("|u1", {count_, facts_.channels, side, side})));
    return write_header(targets_file_, has_masks(facts_) ? npy_header("|u1", {count_, side, side})
                                                         : npy_header("<i4", {count_}));
}

bool has_image_arrays(const fs::path& directory) {
    std::error_code ignored;
    return fs::exists(directory / kImagesFile, ignored);
}

std::vector<fs::path> image_array_files(const fs::path& directory) {
    const auto facts = read_image_facts(directory);
    std::vector<fs::path> files{directory / kImagesFile};
    for (const char* part : {"train", "val"}) {
        files.push_back(images_in(directory, part));
        files.push_back(targets_in(directory, part, facts && has_masks(*facts)));
    }
    return files;
}

Result<Dataset> load_image_arrays(const fs::path& directory, DataSet set, std::int64_t side) {
    const auto facts = DP_TRY(read_image_facts(directory));
    if (facts.set != set)
        return fail(Fault::usage, "{}: its images have {}; {}", directory.string(),
                    has_masks(facts) ? "masks" : "classes",
                    has_masks(facts) ? "give --model=unet2d" : "give --model=cnn or ffn");
    if (facts.side != side || facts.channels != (has_masks(facts) ? 3 : 1))
        return fail(Fault::usage,
                    "{}: its images have {} x {} pixels, and the model takes {} x {}; give the "
                    "images themselves as --data-dir",
                    directory.string(), facts.side, facts.side, side, side);
    if (!has_masks(facts) && facts.classes.size() > kMostClasses)
        return damaged(directory / kImagesFile, fmt::format("{} classes", facts.classes.size()));
    auto train = DP_TRY(load_image_part(directory, "train", facts));
    auto test = DP_TRY(load_image_part(directory, "val", facts));
    return Dataset{std::move(train), std::move(test), directory.string()};
}

// ---- read row by row

Result<void> StoredImages::read(std::int64_t sample, std::span<std::uint8_t> image,
                                std::span<std::uint8_t> target) const {
    for (const auto& [rows, to] : {std::pair(&images_, image), std::pair(&targets_, target)})
        if (const auto read = read_at(rows->opened, rows->at + sample * rows->row, to.data(), to.size());
            !read)
            return fail(Fault::training, "{}: {}: row {} cannot be read; was the file changed?",
                        rows->file.string(), read.error().message, sample);
    return {};
}

void StoredImages::expect(std::int64_t sample) const {
    for (const StoredRows* rows : {&images_, &targets_})
        ::posix_fadvise(rows->opened.get(), rows->at + sample * rows->row, rows->row, POSIX_FADV_WILLNEED);
}

}  // namespace dp::trainer
