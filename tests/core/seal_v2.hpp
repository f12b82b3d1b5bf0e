// The checksums of archives of version 2 (docs/reference/format_v2.md, sections 1, 2, 9).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "archive/checksum.hpp"
#include "archive/pyramid.hpp"
#include "archive/v2/frame.hpp"
#include "archive/v2/logs.hpp"
#include "errors.hpp"

namespace cusz_test::v2 {

// An archive taken apart: its frame and, for the spline codec without a lossless stage, its head. Throws CORRUPT.
struct Parts {
    std::size_t front_bytes = 0;
    cusz::v2::Front front;
    cusz::v2::Head head;
    std::size_t first_unit = 0;

    explicit Parts(std::span<const std::byte> archive) : front(cusz::v2::read_front(archive, front_bytes)) {
        if (front.kind == cusz::v2::Kind::spline && !front.has_zstd)
            first_unit = cusz::v2::read_head(archive, archive.size(), front, front_bytes, head);
    }
    // Writes the head and all checksums.
    void write(std::span<std::byte> archive) {
        std::size_t end = archive.size();
        if (front.kind == cusz::v2::Kind::logs) {
            end = cusz::v2::read_logs(archive, archive.size(), front, front_bytes).header_bytes;
        } else if (first_unit > 0) {
            end = first_unit + static_cast<std::size_t>(head.units[0].bytes);
            find_checksums(archive, end);
            const std::vector<std::byte> bytes = cusz::v2::write_head(front, front_bytes, head);
            std::ranges::copy(bytes, archive.begin() + static_cast<std::ptrdiff_t>(front_bytes) + 4);
        }
        cusz::v2::seal(archive.first(end), front_bytes);
    }

private:
    void find_checksums(std::span<const std::byte> archive, std::size_t at) {
        const auto units = cusz::v2::units_of({front.layout.ndim, front.layout.shape.data(), head.how.axes});
        std::size_t of_lattice = 0;
        std::uint64_t sum = 0;
        for (std::size_t u = 1, number = 0; u < units.size(); ++u, ++number) {
            if (u > 1 && units[u].lattice != units[u - 1].lattice) {
                head.checksums[of_lattice++] = cusz::fold(sum);
                sum = number = 0;
            }
            const auto n = static_cast<std::size_t>(head.units[u].bytes);
            const std::span unit = archive.subspan(at, n);
            std::vector<std::byte> words(unit.begin(), unit.end());
            while (words.size() % 4 != 0) words.push_back({});
            sum += cusz::part(number, words.data(), words.size() / 4);
            at += n;
        }
        if (units.size() > 1) head.checksums[of_lattice] = cusz::fold(sum);
    }
};

// Writes all checksums if the archive can be taken apart.
inline void seal(std::span<std::byte> archive) {
    try {
        Parts parts(archive);
        if (parts.front_bytes + 4 <= archive.size()) parts.write(archive);
    } catch (const cusz::Error&) { // it is refused in any case
    }
}

} // namespace cusz_test::v2
