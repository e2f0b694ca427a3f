// json ROUNDS: builds documents, prints, parses, changes and compares them, and parses some that
// are invalid.
#include "region.h"
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

using nlohmann::json;

static json document(unsigned seed) {
    json all = json::object();
    for (unsigned i = 0; i < 200; i++) {
        seed = seed * 1664525u + 1013904223u;
        json one = {{"id", i}, {"name", "name " + std::to_string(seed % 1000)}, {"share", seed / 7.0}, {"tags", json::array()}};
        for (unsigned tag = 0; tag < seed % 5; tag++) one["tags"].push_back("tag" + std::to_string(tag));
        all["items"].push_back(std::move(one));
    }
    return all;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    int rounds = atoi(argv[1]);
    unsigned long sum = 0;
    region_begin();
    for (int round = 0; round < rounds; round++) {
        json first = document(round), second = document(round + 1);
        std::string text = first.dump(2);
        json again = json::parse(text);
        if (again != first) abort();
        json changes = json::diff(first, second);
        if (first.patch(changes) != second) abort();
        for (int cut = 1; cut < 20; cut++) {
            try {
                sum += json::parse(text.substr(0, text.size() * cut / 20)).size();
            } catch (const json::parse_error &error) {
                sum += error.byte;
            }
        }
        sum += text.size() + changes.size();
    }
    region_end();
    printf("%lu\n", sum);
    return 0;
}
