#include "picture.h"

#include <algorithm>

namespace picture {
namespace {

// An area that is smaller than this is a leaf whatever it holds.
constexpr int kSmallestArea = 16;
// Pixels of one leaf differ by less than this.
constexpr int kEvenness = 24;

uint8_t noise(uint32_t& state) {
    state = state * 1664525u + 1013904223u;
    return static_cast<uint8_t>(state >> 24);
}

void check_header(const std::string& name) {
    if (name.size() > 4 && name.compare(name.size() - 4, 4, ".bad") == 0) {
        throw Damaged(name + " holds no picture");
    }
}

void read_header(Picture& picture, int size) {
    check_header(picture.name);
    picture.width = size;
    picture.height = size;
    picture.pixels.resize(static_cast<size_t>(size) * size);
}

// A gradient with noise in one corner, so that the quadtree is deep there.
void decode_row(Picture& picture, int y, uint32_t& state) {
    uint8_t* row = &picture.pixels[static_cast<size_t>(y) * picture.width];
    for (int x = 0; x < picture.width; ++x) {
        const bool noisy = x < picture.width / 3 && y < picture.height / 3;
        row[x] = noisy ? noise(state) : static_cast<uint8_t>(64 + 32 * y / picture.height);
    }
}

// The mean of each pixel and its neighbours, `step` pixels away.
void blur_row(std::vector<uint8_t>& pixels, size_t first, int count, size_t step) {
    uint8_t before = pixels[first];
    for (int i = 1; i + 1 < count; ++i) {
        const size_t at = first + i * step;
        const uint8_t now = pixels[at];
        pixels[at] = static_cast<uint8_t>((before + 2 * now + pixels[at + step]) / 4);
        before = now;
    }
}

bool is_even(const Picture& picture, int left, int top, int size) {
    uint8_t low = 255, high = 0;
    for (int y = top; y < top + size; ++y) {
        const uint8_t* row = &picture.pixels[static_cast<size_t>(y) * picture.width];
        const auto [row_low, row_high] = std::minmax_element(row + left, row + left + size);
        low = std::min(low, *row_low);
        high = std::max(high, *row_high);
    }
    return high - low < kEvenness;
}

int count_in(const Picture& picture, int left, int top, int size) {
    if (size <= kSmallestArea || is_even(picture, left, top, size)) {
        return 1;
    }
    const int half = size / 2;
    return count_in(picture, left, top, half) + count_in(picture, left + half, top, half) +
           count_in(picture, left, top + half, half) + count_in(picture, left + half, top + half, half);
}

}  // namespace

Picture decode(const std::string& name, int size) {
    Picture picture;
    picture.name = name;
    read_header(picture, size);
    uint32_t state = 1;
    for (int y = 0; y < picture.height; ++y) {
        decode_row(picture, y, state);
    }
    return picture;
}

void blur(Picture& picture) {
    for (int y = 0; y < picture.height; ++y) {
        blur_row(picture.pixels, static_cast<size_t>(y) * picture.width, picture.width, 1);
    }
    for (int x = 0; x < picture.width; ++x) {
        blur_row(picture.pixels, x, picture.height, picture.width);
    }
}

int count_leaves(const Picture& picture) {
    return count_in(picture, 0, 0, picture.width);
}

Picture shrink(const Picture& picture) {
    Picture small;
    small.name = picture.name;
    small.width = picture.width / 4;
    small.height = picture.height / 4;
    small.pixels.reserve(static_cast<size_t>(small.width) * small.height);
    for (int y = 0; y < small.height; ++y) {
        for (int x = 0; x < small.width; ++x) {
            small.pixels.push_back(picture.pixels[static_cast<size_t>(4 * y) * picture.width + 4 * x]);
        }
    }
    return small;
}

}  // namespace picture
