// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "trainer/base/files.hpp"
#include "trainer/data/image_arrays.hpp"
#include "trainer/prepare/image_set.hpp"

namespace dp::trainer {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepestPicture = 32;  // of directories: links may go round in a circle

// What torchvision takes for an image (IMG_EXTENSIONS): what this trainer does not decode is a bad sample, not passed over.
bool is_picture(const fs::path& file) {
    static const std::set<std::string> kExtensions{".jpg", ".jpeg", ".png",  ".ppm", ".bmp",
                                                   ".pgm", ".tif",  ".tiff", ".webp"};
    std::string extension = file.extension().string();
    std::ranges::transform(extension, extension.begin(), [](unsigned char c) { return std::tolower(c); });
    return kExtensions.contains(extension);
}

bool is_hidden_name(const fs::path& path) {
    return path.filename().string().starts_with(".");
}

// In the order of their names, as Python sorts them.
std::vector<fs::path> directories_in(const fs::path& directory) {
    std::vector<fs::path> found;
    std::error_code ignored;
    for (auto& entry : entries_of(directory))
        if (!is_hidden_name(entry) && entry.filename() != "lost+found" && fs::is_directory(entry, ignored))
            found.push_back(std::move(entry));
    std::ranges::sort(found);
    return found;
}

// All pictures of a directory and of those below, in the order of their names.
Result<std::vector<fs::path>> pictures_below(const fs::path& where, bool only_first = false) {
    using Walk = fs::recursive_directory_iterator;
    std::vector<fs::path> found;
    std::error_code error;
    fs::path last = where;
    std::set<fs::path> seen{fs::weakly_canonical(where, error)};
    error.clear();
    for (Walk at(where, fs::directory_options::follow_directory_symlink, error), end; !error && at != end;
         at.increment(error)) {
        last = at->path();
        std::error_code ignored;
        if (at->is_directory(ignored)) {
            // Links may lead back, and more than one of them to a tree without end.
            const bool is_new = seen.insert(fs::weakly_canonical(last, ignored)).second;
            if (is_hidden_name(last) || at.depth() >= kDeepestPicture || !is_new)
                at.disable_recursion_pending();
        } else if (!is_hidden_name(last) && is_picture(last)) {
            found.push_back(last);
            if (only_first) return found;
        }
    }
    if (error)
        return fail(Fault::usage, "{}: cannot be read, or what follows it there: {}", last.string(),
                    error.message());
    std::ranges::sort(found);
    return found;
}

// The directories of a set, by what their names say. Where none is for the training, all others are.
struct Roots {
    fs::path train;
    std::optional<fs::path> test;
};
Roots roots_of(const fs::path& where) {
    std::error_code ignored;
    Roots roots{where, {}};
    // A class may be called so, too: then its pictures are in it, not in directories or arrays.
    const auto is_part = [&](const fs::path& directory) {
        return fs::exists(directory / "images.npy", ignored) || !directories_in(directory).empty();
    };
    if (is_part(where / "train")) roots.train = where / "train";
    for (const char* name : {"val", "valid", "validation", "test"})
        if (!roots.test && is_part(where / name)) roots.test = where / name;
    return roots;
}

bool is_for_a_test(const fs::path& directory) {
    const std::string name = directory.filename().string();
    const bool is_named = name == "val" || name == "valid" || name == "validation" || name == "test";
    return is_named && !directories_in(directory).empty();
}

std::string name_from(const fs::path& where, const fs::path& file) {
    return file.lexically_relative(where).string();
}

// Images with masks, in files: no classes of that name.
bool has_masks(const fs::path& directory) {
    std::error_code ignored;
    return fs::is_directory(directory / "images", ignored) && fs::is_directory(directory / "masks", ignored);
}

// ---- classes

Result<std::vector<Picture>> pictures_of_classes(const ImageSet& set, const std::vector<fs::path>& classes) {
    std::vector<Picture> pictures;
    for (const fs::path& directory : classes) {
        const std::string name = directory.filename().string();
        const auto number = std::ranges::find(set.classes, name) - set.classes.begin();
        const auto files = DP_TRY(pictures_below(directory));
        if (static_cast<std::size_t>(number) == set.classes.size()) {
            if (files.empty()) continue;
            return fail(Fault::usage,
                        "{}: a class that is not trained on (those are {}); move it away, or give it images "
                        "to train on",
                        directory.string(), fmt::join(set.classes, ", "));
        }
        for (const fs::path& file : files)
            pictures.push_back({name_from(set.where, file), {}, -1, static_cast<std::int32_t>(number)});
    }
    return pictures;
}

Result<std::optional<ImageSet>> find_classes(const fs::path& where) {
    const Roots roots = roots_of(where);
    if (has_masks(roots.train)) return std::nullopt;
    std::vector<fs::path> classes = directories_in(roots.train);
    if (roots.train == where) std::erase_if(classes, is_for_a_test);
    ImageSet set{where};
    for (const fs::path& directory : classes) set.classes.push_back(directory.filename().string());
    std::vector<fs::path> empty;
    for (const fs::path& directory : classes) {
        const auto some = DP_TRY(pictures_below(directory, true));
        if (some.empty()) empty.push_back(directory);
    }
    if (empty.size() == classes.size()) return std::nullopt;
    // As torchvision does: the numbers of the others would not be those of another run.
    if (!empty.empty())
        return fail(Fault::usage, "{}: a class without images; remove the directory, or give it some",
                    empty.front().string());
    if (set.classes.size() > kMostClasses)
        return fail(Fault::usage,
                    "{}: has {} classes, and cnn and ffn take at most {}; give fewer directories",
                    roots.train.string(), set.classes.size(), kMostClasses);
    set.train = DP_TRY(pictures_of_classes(set, classes));
    if (roots.test) {
        set.test_name = roots.test->filename().string();
        set.test = DP_TRY(pictures_of_classes(set, directories_in(*roots.test)));
    }
    return set;
}

// ---- masks

// A directory has pairs in arrays, or in files, or none.
Result<std::vector<Picture>> pairs_in(const fs::path& where, const fs::path& directory) {
    std::vector<Picture> pictures;
    std::error_code ignored;
    const fs::path images = directory / "images", masks = directory / "masks";
    if (fs::exists(directory / "images.npy", ignored) && fs::exists(directory / "masks.npy", ignored)) {
        const fs::path array = directory / "images.npy";
        auto opened = open_npy_array(array, "|u1 <f4 <f8");
        if (!opened) return fail(Fault::usage, "{}: {}", array.string(), opened.error().message);
        if (opened->array.shape.size() < 3 || opened->array.shape.size() > 4)
            return fail(Fault::usage,
                        "{}: its shape has {} dimensions; images have (N, H, W) or (N, H, W, C)",
                        array.string(), opened->array.shape.size());
        if (opened->row_bytes() < 1 || opened->rows() > std::numeric_limits<std::int32_t>::max())
            return fail(Fault::usage, "{}: its images have no pixels, or there are too many", array.string());
        for (std::int64_t row = 0; row < opened->rows(); ++row)
            pictures.push_back({name_from(where, array), name_from(where, directory / "masks.npy"), row});
        return pictures;
    }
    if (!fs::is_directory(images, ignored) || !fs::is_directory(masks, ignored)) return pictures;
    std::map<std::string, fs::path> by_stem;
    std::vector<fs::path> files_of_masks = entries_of(masks);
    std::ranges::sort(files_of_masks);
    for (const fs::path& mask : files_of_masks) {
        if (is_hidden_name(mask) || (!is_picture(mask) && mask.extension() != ".npy")) continue;
        if (const auto [other, is_new] = by_stem.emplace(mask.stem().string(), mask); !is_new)
            return fail(Fault::usage, "{} and {}: both are masks of one image; move one away",
                        other->second.string(), mask.string());
    }
    std::vector<fs::path> files = entries_of(images);
    std::ranges::sort(files);
    for (const fs::path& file : files) {
        if (is_hidden_name(file) || (!is_picture(file) && file.extension() != ".npy")) continue;
        const auto mask = by_stem.find(file.stem().string());
        pictures.push_back(
            {name_from(where, file), mask == by_stem.end() ? "" : name_from(where, mask->second)});
    }
    return pictures;
}

Result<std::optional<ImageSet>> find_pairs(const fs::path& where) {
    const Roots roots = roots_of(where);
    ImageSet set{where, DataSet::segmentation};
    set.train = DP_TRY(pairs_in(where, roots.train));
    if (set.train.empty()) return std::nullopt;
    if (roots.test) {
        set.test_name = roots.test->filename().string();
        set.test = DP_TRY(pairs_in(where, *roots.test));
    }
    return set;
}

}  // namespace

bool has_image_folder(const fs::path& where) {
    const fs::path train = roots_of(where).train;
    if (has_masks(train)) return false;
    const auto classes = directories_in(train);
    return std::ranges::any_of(classes, [](const fs::path& directory) {
        const auto found = pictures_below(directory, true);
        return found && !found->empty();
    });
}

Result<std::optional<ImageSet>> find_image_set(const fs::path& where, DataSet set) {
    if ((set != DataSet::fashion_mnist && set != DataSet::segmentation) || has_fashion_mnist(where) ||
        has_image_arrays(where))
        return std::nullopt;
    return set == DataSet::segmentation ? find_pairs(where) : find_classes(where);
}

}  // namespace dp::trainer
