// What the tests of the TCP transport share: ranks as threads, each with a transport of its own, and a sink that keeps
// what arrives.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/tcp/tcp_transport.hpp"
#include "tulle/base/error.hpp"

namespace tulle::testing {

/// A rendezvous of threads.
class Lobby {
 public:
  explicit Lobby(int size) : cards_(static_cast<std::size_t>(size)) {}
  /// Changes what all ranks get.
  std::function<void(std::vector<std::string>&)> tamper = {};

  std::vector<std::string> meet(int rank, const std::string& mine) {
    std::unique_lock lock(mutex_);
    cards_[static_cast<std::size_t>(rank)] = mine;
    came_ += 1;
    changed_.notify_all();
    changed_.wait(lock, [&] { return came_ == cards_.size(); });
    std::vector<std::string> cards = cards_;
    if (tamper) tamper(cards);
    return cards;
  }
  int size() const { return static_cast<int>(cards_.size()); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> cards_;
  std::size_t came_ = 0;
};

class LobbyRendezvous final : public Rendezvous {
 public:
  LobbyRendezvous(Lobby& lobby, int rank) : lobby_(lobby), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return lobby_.size(); }
  std::vector<std::string> allgather(const std::string& mine) override { return lobby_.meet(rank_, mine); }
  std::string meeting_host() const override { return "127.0.0.1"; }

 private:
  Lobby& lobby_;
  int rank_;
};

/// Runs `body(rank)` on threads and throws the error of the lowest rank that had one.
inline void run_ranks(int ranks, const std::function<void(int)>& body) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          body(rank);
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

/// Bytes that tell whose they are and where they belong.
inline Buffer bytes_with(std::size_t bytes, std::uint64_t seed) {
  Buffer buffer = Buffer::allocate(bytes);
  auto* const data = reinterpret_cast<std::uint8_t*>(buffer.data_for_landing());
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::uint8_t>((i * 0x9E3779B1u + seed * 77) >> 13);
  return buffer;
}

inline bool same_bytes(const Buffer& a, const Buffer& b) {
  return a.size() == b.size() && std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin());
}

inline Message message_of(Segments segments, std::uint64_t fingerprint = 0) {
  MessageHeader header;
  header.fingerprint = fingerprint;
  Buffer head = encode_message_head(header, segments);
  return {.head = std::move(head), .segments = std::move(segments)};
}
inline Message message_of_lengths(const std::vector<std::size_t>& lengths, std::uint64_t seed) {
  Segments segments;
  for (std::size_t i = 0; i < lengths.size(); ++i) segments.push_back(bytes_with(lengths[i], seed + i));
  return message_of(std::move(segments), seed);
}

/// What meet_all() sends; the sink counts these apart.
inline constexpr std::uint64_t kMeeting = 0x4D454554;

/// Keeps what arrives.
class KeepingSink final : public MessageSink {
 public:
  struct Arrival {
    int source;
    Message message;
  };
  std::vector<Arrival> messages;
  std::size_t meetings = 0;
  std::vector<std::pair<int, std::string>> failures;
  std::vector<int> leavers;
  std::function<Buffer(std::span<const Buffer> arrived, std::size_t segment, std::uint64_t bytes)> landing;

  void deliver(int source, Message message) override {
    if (decode_message_header(message.head.bytes()).fingerprint == kMeeting) {
      meetings += 1;
    } else {
      messages.push_back({source, std::move(message)});
    }
  }
  Buffer landing_for(int, std::span<const std::byte>, std::span<const Buffer> arrived, std::size_t segment,
                     std::uint64_t bytes) override {
    return landing ? landing(arrived, segment, bytes) : Buffer();
  }
  void peer_left(int source) override { leavers.push_back(source); }
  void fail_peer(int source, ErrorKind, const std::string& reason) override { failures.emplace_back(source, reason); }
  void settle() override {}
};

/// One rank: its transport and what came to it.
struct TcpRank {
  explicit TcpRank(Rendezvous& rendezvous, const TcpOptions& options = {}) : transport(rendezvous, options) {
    transport.attach(sink);
  }
  /// Makes progress until `done()`, as an engine would. False after `seconds`.
  bool progress_until(const std::function<bool()>& done, double seconds = 60) {
    const Deadline deadline(seconds);
    for (int misses = 0; !done(); ++misses) {
      if (deadline.has_passed()) return false;
      if (transport.poll()) {
        misses = -1;
      } else {
        transport.idle(misses);
      }
    }
    return true;
  }
  bool await_messages(std::size_t count, double seconds = 60) {
    return progress_until([&] { return sink.messages.size() >= count || !sink.failures.empty(); }, seconds) &&
           sink.failures.empty();
  }
  bool await_failure(double seconds = 60) {
    return progress_until([&] { return !sink.failures.empty(); }, seconds);
  }
  /// Tells everybody that this rank is here and waits until all were, so that nobody leaves early. Who has been here
  /// may be lost by then.
  bool meet_all() {
    const auto others = static_cast<std::size_t>(transport.size()) - 1;
    expected_meetings += others;
    for (int peer = 0; peer < transport.size(); ++peer) {
      if (peer != transport.rank()) transport.send(peer, message_of({}, kMeeting));
    }
    progress_until([&] { return sink.meetings >= expected_meetings || !sink.failures.empty(); });
    return sink.meetings >= expected_meetings;
  }

  std::size_t expected_meetings = 0;
  KeepingSink sink;  // outlives the transport
  TcpTransport transport;
};

/// Ranks as threads, connected.
inline void run_tcp(int ranks, const TcpOptions& options, const std::function<void(TcpRank&)>& body) {
  Lobby lobby(ranks);
  run_ranks(ranks, [&](int rank) {
    LobbyRendezvous rendezvous(lobby, rank);
    TcpRank self(rendezvous, options);
    body(self);
  });
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

/// The message of the tulle::Error that `action` throws; "no error" if none.
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace tulle::testing
