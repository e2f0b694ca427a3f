// A library that turns pictures into thumbnails; just enough work to look at on a timeline.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace picture {

// Grey pixels, row by row.
struct Picture {
    std::string name;
    int width = 0;
    int height = 0;
    std::vector<uint8_t> pixels;
};

// A file that holds no picture.
struct Damaged : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Decodes a made-up file of `size` x `size` pixels. Throws Damaged, some calls deeper, for names that end in ".bad".
Picture decode(const std::string& name, int size);

// Softens a picture in two passes.
void blur(Picture& picture);

// Counts the leaves of the quadtree that describes the picture: even areas are one leaf.
int count_leaves(const Picture& picture);

// A quarter of the width, a quarter of the height.
Picture shrink(const Picture& picture);

}  // namespace picture
