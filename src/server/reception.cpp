// How it works. Rank 0 looks at its door from a thread. Where somebody waits and a worker is lost it tells the other
// servers, whose threads wait for that; all call admit(). In the new group rank 0 then broadcasts the *seating*: how
// many ranks the job has, how many are servers, and the place of each newcomer.
#include "tulle/server/reception.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "comm/tcp/clock.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/control.hpp"

namespace tulle::server {
namespace {

// How often rank 0 looks at its door. A process that is started takes far longer to get there.
constexpr std::chrono::milliseconds kBetweenLooks(50);
// Servers wait for rank 0's word as long as the job takes.
constexpr double kForEver = 1e9;
// Once a newcomer is let in it hears of its place at once, or is gone.
constexpr double kSeatingSeconds = 60;
// A newcomer has so long to join before its place is given to another one.
constexpr double kPromiseSeconds = 20;

Buffer buffer_of(const std::string& text) { return Buffer::copy_of(std::as_bytes(std::span(text))); }
std::string text_of(const Buffer& buffer) { return {reinterpret_cast<const char*>(buffer.data()), buffer.size()}; }

struct Seating {
  int ranks = 0, servers = 0;
  std::vector<int> places;  ///< by newcomer; 0: none
};

std::string to_text(const Seating& seating) {
  std::string text = fmt::format("{} {}", seating.ranks, seating.servers);
  for (const int place : seating.places) text += fmt::format(" {}", place);
  return text;
}

Seating seating_from(const std::string& text) {
  std::istringstream words(text);
  Seating seating;
  words >> seating.ranks >> seating.servers;
  for (int place = 0; words >> place;) seating.places.push_back(place);
  return seating;
}

}  // namespace

class Reception::Desk {
 public:
  Desk(Server& server, Communicator servers, Door* door, ReceptionOptions options)
      : server_(server), servers_(std::move(servers)), door_(door), options_(std::move(options)) {
    servers_.set_default_deadline(kForEver);
    server_.expect_newcomers();
    thread_ = std::thread([this] { work(); });
  }
  ~Desk() {
    {
      const std::lock_guard lock(mutex_);
      is_closing_ = true;
    }
    closes_.notify_all();
    thread_.join();
  }

 private:
  bool is_leader() const { return servers_.rank() == 0; }

  // What fails here is between servers: they go on with the workers that they have.
  void work() {
    try {
      while (is_wanted()) let_in();
    } catch (const std::exception&) {
    }
  }

  // Rank 0 says whether there is somebody to let in or the job is over; it does not speak before.
  bool is_wanted() {
    const std::string word = is_leader() && is_somebody_waiting() ? "in" : "";
    return text_of(broadcast_bytes(servers_, buffer_of(word))) == "in";
  }

  bool is_somebody_waiting() {
    while (!is_closing()) {
      if (door_->waiting() > 0 && !vacancies().empty()) return true;
    }
    return false;
  }

  bool is_closing() {
    std::unique_lock lock(mutex_);
    return closes_.wait_for(lock, kBetweenLooks, [&] { return is_closing_; });
  }

  std::vector<int> vacancies() {
    std::vector<int> ranks = server_.vacancies();
    std::erase_if(ranks, [&](int rank) {
      const auto promise = promises_.find(rank);
      return promise != promises_.end() && !promise->second.has_passed();
    });
    return ranks;
  }

  void let_in() {
    try {
      Communicator group = admit(servers_, door_);
      if (group.context() == servers_.context()) return;
      group.set_default_deadline(kSeatingSeconds);
      const std::string text = is_leader() ? to_text(seat(group.size() - servers_.size())) : "";
      const Seating seating = seating_from(text_of(broadcast_bytes(group, buffer_of(text))));
      if (is_leader() && options_.on_arrival) options_.on_arrival(group, seating.places);
      server_.adopt(group, seating.places);
    } catch (const Error&) {  // a newcomer is gone: the servers' own communicator tells whether it is more than that
    }
  }

  Seating seat(int newcomers) {
    Seating seating{.ranks = server_.ranks(), .servers = servers_.size(), .places = vacancies()};
    seating.places.resize(static_cast<std::size_t>(newcomers));
    for (const int place : seating.places) promises_.insert_or_assign(place, Deadline(kPromiseSeconds));
    return seating;
  }

  Server& server_;
  Communicator servers_;
  Door* door_;
  ReceptionOptions options_;
  std::map<int, Deadline> promises_;  ///< by place: until then it is kept for a newcomer that was told of it
  std::mutex mutex_;
  std::condition_variable closes_;
  bool is_closing_ = false;
  std::thread thread_;
};

Reception::Reception(Server& server, Communicator servers, Door* door, ReceptionOptions options) {
  const std::string transport = servers.engine()->transport().name();
  if (transport != "tcp") {
    throw Error(ErrorKind::unsupported,
                fmt::format("a process can take a lost worker's place on TCP, and not on {}", transport));
  }
  desk_ = std::make_unique<Desk>(server, std::move(servers), door, std::move(options));
}
Reception::~Reception() = default;

TakenPlace take_place(const JoinOptions& where, const TcpOptions& options) {
  const double end = steady_seconds() + where.deadline_seconds;
  while (true) {
    JoinOptions rest = where;
    rest.deadline_seconds = std::max(end - steady_seconds(), 0.0);
    Communicator group = join(rest, options);
    group.set_default_deadline(kSeatingSeconds);
    const Seating seating = seating_from(text_of(broadcast_bytes(group, {})));
    const auto mine = static_cast<std::size_t>(group.rank() - seating.servers);
    const int place = mine < seating.places.size() ? seating.places[mine] : 0;
    if (place > 0) return {std::move(group), {.rank = place, .ranks = seating.ranks}};
    std::this_thread::sleep_for(kBetweenLooks);  // others were first
  }
}

}  // namespace tulle::server
