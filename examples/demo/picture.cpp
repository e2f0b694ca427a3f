#include "picture.h"

namespace picture {
namespace {

// An area that is smaller than this is a leaf whatever it holds.
constexpr int kSmallestArea = 16;
// Pixels of one leaf differ by less than this.
constexpr int kEvenness = 24;

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
    uint8_t* row = picture.pixels.data() + static_cast<size_t>(y) * picture.width;
    for (int x = 0; x < picture.width; ++x) {
        const bool noisy = x < picture.width / 3 && y < picture.height / 3;
        state = state * 1664525u + 1013904223u;
        row[x] = noisy ? static_cast<uint8_t>(state >> 24) : static_cast<uint8_t>(64 + 32 * y / picture.height);
    }
}

// The mean of each pixel and its neighbours, `step` pixels away.
void blur_line(uint8_t* pixel, int count, int step) {
    uint8_t before = *pixel;
    for (int i = 2; i < count; ++i) {
        pixel += step;
        const uint8_t now = *pixel;
        *pixel = static_cast<uint8_t>((before + 2 * now + pixel[step]) / 4);
        before = now;
    }
}

bool is_even(const Picture& picture, int left, int top, int size) {
    uint8_t low = 255, high = 0;
    for (int y = top; y < top + size; ++y) {
        const uint8_t* row = picture.pixels.data() + static_cast<size_t>(y) * picture.width;
        for (int x = left; x < left + size; ++x) {
            low = row[x] < low ? row[x] : low;
            high = row[x] > high ? row[x] : high;
        }
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
    uint8_t* pixels = picture.pixels.data();
    for (int y = 0; y < picture.height; ++y) {
        blur_line(pixels + static_cast<size_t>(y) * picture.width, picture.width, 1);
    }
    for (int x = 0; x < picture.width; ++x) {
        blur_line(pixels + x, picture.height, picture.width);
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
    small.pixels.resize(static_cast<size_t>(small.width) * small.height);
    uint8_t* pixel = small.pixels.data();
    for (int y = 0; y < small.height; ++y) {
        const uint8_t* row = picture.pixels.data() + static_cast<size_t>(4 * y) * picture.width;
        for (int x = 0; x < small.width; ++x) {
            *pixel++ = row[4 * x];
        }
    }
    return small;
}

}  // namespace picture
