// Stands in for PFPL's programs: the archive holds the upper two of every four bytes of a field, so errors have any
// size. Prints the times of its runs as PFPL does.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

int main(int n_words, char** words) {
    const bool compresses = n_words == 4;
    std::ifstream in(words[1], std::ios::binary);
    const std::vector<char> given{std::istreambuf_iterator<char>(in), {}};
    std::vector<char> made;
    if (compresses) {
        for (std::size_t i = 0; i < given.size(); ++i)
            if (i % 4 >= 2) made.push_back(given[i]);
    } else {
        for (std::size_t i = 0; i < given.size(); i += 2) made.insert(made.end(), {0, 0, given[i], given[i + 1]});
    }
    for (int run = 1; run <= 9; ++run)
        std::printf("lc %s ecltime, %12.9f\n", compresses ? "comp" : "decomp", 1e-6 * run);
    std::ofstream(words[2], std::ios::binary).write(made.data(), static_cast<std::streamsize>(made.size()));
}
