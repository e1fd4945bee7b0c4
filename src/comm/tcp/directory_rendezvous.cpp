// A rendezvous in a directory.
//
// How it works: every rank writes its *card* and reads those of the others until all are there. It then writes what it
// has *seen*: a checksum of all cards. When all ranks have seen the same, all cards are those of this job, because each
// rank's own card is part of its checksum, and files of an earlier job cannot agree with that. Until then a rank reads
// again, and says again what it has seen. Files appear whole: they are written beside their place and renamed.
#include <fmt/format.h>
#include <sys/random.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "comm/tcp/clock.hpp"
#include "comm/tcp/missing_ranks.hpp"
#include "comm/tcp/rendezvous_member.hpp"
#include "tulle/base/crc32c.hpp"

namespace tulle {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks(5);

std::optional<std::string> read_whole(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A card says the same twice in a row only by accident: it begins with a number of its own.
std::string with_number(const std::string& bytes) {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number)
    number = static_cast<std::uint64_t>(steady_seconds() * 1e9);
  return fmt::format("{:016x}", number) + bytes;
}
constexpr std::size_t kNumberDigits = 16;

class DirectoryRendezvous final : public RendezvousMember {
 public:
  explicit DirectoryRendezvous(const DirectoryRendezvousOptions& options)
      : RendezvousMember("directory_rendezvous", options.rank, options.size),
        path_(options.path),
        deadline_seconds_(options.deadline_seconds) {}

  std::vector<std::string> allgather(const std::string& mine) override {
    round_ += 1;
    write("card", with_number(mine));
    const Deadline deadline(deadline_seconds_);
    for (std::string said;; std::this_thread::sleep_for(kBetweenLooks)) {
      std::vector<int> missing;
      const std::vector<std::string> cards = read_cards(missing);
      if (missing.empty()) {
        const std::string seen = checksum_of(cards);
        if (std::exchange(said, seen) != seen) write("seen", seen);
        missing = ranks_that_saw_something_else(seen);
        if (missing.empty()) return without_numbers(cards);
      }
      if (deadline.has_passed()) {
        throw missing_ranks_error(missing, fmt::format("come to the directory {}", path_.string()), deadline_seconds_)
            .at_rank(rank());
      }
    }
  }

 private:
  std::filesystem::path file(std::string_view kind, int rank) const {
    return path_ / fmt::format("{}.{}.{}", kind, round_, rank);
  }

  void write(std::string_view kind, const std::string& bytes) const {
    const std::filesystem::path place = file(kind, rank());
    std::filesystem::path beside = place;
    beside += ".new";
    {
      std::ofstream stream(beside, std::ios::binary | std::ios::trunc);
      stream << bytes;
      stream.close();
      if (!stream) throw Error(ErrorKind::system, fmt::format("{} cannot be written", beside.string()));
    }
    std::error_code error;
    std::filesystem::rename(beside, place, error);
    if (error) throw Error(ErrorKind::system, fmt::format("{}: {}", place.string(), error.message()));
  }

  std::vector<std::string> read_cards(std::vector<int>& missing) const {
    std::vector<std::string> cards;
    for (int peer = 0; peer < size(); ++peer) {
      std::optional<std::string> card = read_whole(file("card", peer));
      if (!card || card->size() < kNumberDigits) missing.push_back(peer);
      cards.push_back(std::move(card).value_or(""));
    }
    return cards;
  }

  static std::string checksum_of(const std::vector<std::string>& cards) {
    std::string numbers;
    for (const std::string& card : cards) {
      numbers += fmt::format("{}{:08x}", card.substr(0, kNumberDigits), crc32c(std::as_bytes(std::span(card))));
    }
    return numbers;
  }

  std::vector<int> ranks_that_saw_something_else(const std::string& seen) const {
    std::vector<int> others;
    for (int peer = 0; peer < size(); ++peer) {
      if (read_whole(file("seen", peer)) != seen) others.push_back(peer);
    }
    return others;
  }

  static std::vector<std::string> without_numbers(std::vector<std::string> cards) {
    for (std::string& card : cards) card.erase(0, kNumberDigits);
    return cards;
  }

  std::filesystem::path path_;
  double deadline_seconds_;
  int round_ = 0;
};

}  // namespace

std::unique_ptr<Rendezvous> directory_rendezvous(const DirectoryRendezvousOptions& options) {
  return std::make_unique<DirectoryRendezvous>(options);
}

}  // namespace tulle
