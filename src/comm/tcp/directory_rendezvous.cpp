// A rendezvous in a directory.
//
// How it works: every rank writes its *card* and reads those of the others until all are there. It then writes what it
// has *seen*: a checksum of all cards. When all ranks have seen the same, all cards are those of this job, because each
// rank's own card is part of its checksum, and files of an earlier job cannot agree with that. Until then a rank reads
// again, and says again what it has seen. Files appear whole: they are written beside their place and renamed. Only
// this user may read them, because a card has the rank's token.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <utility>

#include "base/require_deadline.hpp"
#include "comm/tcp/clock.hpp"
#include "comm/tcp/fd.hpp"
#include "comm/tcp/job_identity.hpp"
#include "comm/tcp/missing_ranks.hpp"
#include "comm/tcp/rendezvous_member.hpp"
#include "comm/tcp/socket.hpp"
#include "tulle/base/crc32c.hpp"

namespace tulle {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks(5);

constexpr std::size_t kMostBytesOfRank = 1 << 16;  // a transport's card has a few hundred
constexpr std::size_t kNumberDigits = 16;

// At most `most` bytes: a file of this job has no more.
std::optional<std::string> read_whole(const std::filesystem::path& path, std::size_t most) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) return std::nullopt;
  std::string text(std::min<std::uintmax_t>(bytes, most), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

void write_whole(const std::filesystem::path& path, std::string_view bytes) {
  ::unlink(path.c_str());  // of an earlier job that ended here
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file || ::write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    throw_errno(fmt::format("{} cannot be written", path.string()));
  }
}

// A card says the same twice in a row only by accident: it begins with a number of its own.
std::string with_number(const std::string& bytes) {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number)
    number = static_cast<std::uint64_t>(steady_seconds() * 1e9);
  return fmt::format("{:016x}", number) + bytes;
}

class DirectoryRendezvous final : public RendezvousMember {
 public:
  explicit DirectoryRendezvous(const DirectoryRendezvousOptions& options)
      : RendezvousMember("directory_rendezvous", options.rank, options.size),
        path_(options.path),
        deadline_seconds_(options.deadline_seconds),
        job_(required_job(options.job)) {}

  std::vector<std::string> allgather(const std::string& mine) override {
    if (mine.size() > kMostBytesOfRank) throw Error(ErrorKind::bad_input, "rendezvous: more than 64 KiB from one rank");
    round_ += 1;
    const std::string own = with_number(mine);
    write("card", own);
    const Deadline deadline(deadline_seconds_);
    for (std::string said;; std::this_thread::sleep_for(kBetweenLooks)) {
      std::vector<int> missing;
      const std::vector<std::string> cards = read_cards(missing);
      require_own(cards, own);
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
    std::string name = fmt::format("{}.{}.{}", kind, round_, rank);
    if (!job_.empty()) name += fmt::format(".{:08x}", crc32c(std::as_bytes(std::span(job_))));
    return path_ / name;
  }

  // What another process wrote in this one's place would make both of them the same rank.
  void require_own(const std::vector<std::string>& cards, const std::string& own) const {
    if (cards[static_cast<std::size_t>(rank())] == own) return;
    throw Error(ErrorKind::mismatch,
                fmt::format("two processes say that they are rank {} of {} in the directory {}; if they are of two "
                            "jobs, give each a directory of its own or another TULLE_JOB",
                            rank(), describe_job(job_), path_.string()))
        .at_rank(rank());
  }

  void write(std::string_view kind, const std::string& bytes) const {
    const std::filesystem::path place = file(kind, rank());
    std::filesystem::path beside = place;
    beside += ".new";
    write_whole(beside, bytes);
    std::error_code error;
    std::filesystem::rename(beside, place, error);
    if (error) throw Error(ErrorKind::system, fmt::format("{}: {}", place.string(), error.message()));
  }

  std::vector<std::string> read_cards(std::vector<int>& missing) const {
    std::vector<std::string> cards;
    for (int peer = 0; peer < size(); ++peer) {
      std::optional<std::string> card = read_whole(file("card", peer), kNumberDigits + kMostBytesOfRank);
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
      if (read_whole(file("seen", peer), seen.size() + 1) != seen) others.push_back(peer);
    }
    return others;
  }

  static std::vector<std::string> without_numbers(std::vector<std::string> cards) {
    for (std::string& card : cards) card.erase(0, kNumberDigits);
    return cards;
  }

  std::filesystem::path path_;
  double deadline_seconds_;
  std::string job_;
  int round_ = 0;
};

}  // namespace

std::unique_ptr<Rendezvous> directory_rendezvous(const DirectoryRendezvousOptions& options) {
  require_deadline(options.deadline_seconds, "DirectoryRendezvousOptions: the deadline");
  return std::make_unique<DirectoryRendezvous>(options);
}

}  // namespace tulle
