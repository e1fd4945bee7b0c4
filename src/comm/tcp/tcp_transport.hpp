// The transport on TCP: one connection with each peer, watched by epoll.
//
// Threads: the engine's lock serializes everything except idle() and wake(), which touch the poller alone. A lock of
// its own keeps the state whole while the process forks.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/tcp/fork_watch.hpp"
#include "comm/tcp/greeter.hpp"
#include "comm/tcp/inbox.hpp"
#include "comm/tcp/outbox.hpp"
#include "comm/tcp/placement.hpp"
#include "tulle/base/error.hpp"
#include "tulle/comm/tcp.hpp"
#include "tulle/comm/transport.hpp"

namespace tulle {

class TcpTransport final : public Transport, private InboxOwner, private GreeterOwner, private ForkAware {
 public:
  /// Meets the others and connects with them. Throws as connect() does.
  TcpTransport(Rendezvous& rendezvous, const TcpOptions& options);
  ~TcpTransport() override;

  std::string name() const override { return "tcp"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(links_.size()); }
  void attach(MessageSink& sink) override { sink_ = &sink; }
  void send(int peer, Message message) override;
  bool poll() override;
  void push() override;
  void idle(int misses) override;
  /// Ends idle(), or lets the next one return at once. From any thread, without a lock.
  void wake() override { poller_.wake(); }
  double now() const override { return steady_seconds(); }
  Profile default_profile() const override { return profile_of(placement_); }
  int node_of(int rank) const override { return placement_.nodes[static_cast<std::size_t>(rank)]; }
  void require_progress_thread() const override {}
  bool is_reached(int peer) const override { return is_connected(peer); }
  /// Of segments that are read from a process's memory nothing is heard: they are there also while it is stopped.
  std::uint64_t bytes_heard(int peer) const override { return link(peer).in.bytes_read(); }

  /// True where rank 0 has TULLE_PROFILE set.
  bool profile_is_wanted() const { return greeter_->job().cards.front().has_profile; }
  /// The process that the tests may stop or kill.
  const Card& card_of(int rank) const { return greeter_->job().cards[static_cast<std::size_t>(rank)]; }
  /// True where large segments to `peer` are read by it from this process's memory.
  bool is_pulled_by(int peer) const { return link(peer).can_pull; }
  bool is_connected(int peer) const override { return link(peer).state == Link::State::open; }

 private:
  struct Link {
    enum class State {
      absent,  ///< not connected yet
      open,
      condemned,  ///< what it sends cannot be believed; it is told so and has time to end the connection
      left,       ///< the peer said goodbye and has closed
      lost,
    };
    Link(int peer, const Inbox::Settings& settings, bool has_checksums)
        : out(settings.limits, has_checksums), in(peer, settings) {}

    State state = State::absent;
    Fd fd;
    Outbox out;
    Inbox in;
    bool can_pull = false;      ///< the peer can read this process's memory
    bool said_goodbye = false;  ///< the peer did
    bool watches_writability = false;
    double answered_seconds = 0;     ///< when the peer's host was last known to owe nothing
    double condemned_seconds = 0;    ///< when it became so
    PoolDeque<Message> unconnected;  ///< sent before there was a connection
  };
  struct Pull {
    int source;
    PullOrder order;
    std::size_t next_piece = 0;
  };
  struct Arrival {
    int source;
    Message message;
  };
  struct Failure {
    int peer;
    ErrorKind kind;
    std::string reason;
  };

  // Behind the segments that are received in place. Larger: more of a large segment passes through it and is copied.
  // Smaller: more reads for a flood of small messages.
  static constexpr std::size_t kScratchBytes = std::size_t{32} << 10;

  Link& link(int peer) { return links_[static_cast<std::size_t>(peer)]; }
  const Link& link(int peer) const { return links_[static_cast<std::size_t>(peer)]; }
  void require_own_process() const;

  // Connecting.
  Greeter::Job meet(Rendezvous& rendezvous);
  void connect_all(const Rendezvous& rendezvous);
  Error failure_while_connecting() const;
  std::vector<int> unconnected_ranks() const;

  // Out.
  void write(int peer);
  void watch(int peer);

  // In.
  bool deliver_early();
  bool handle_events();
  void handle_link(int peer, std::uint32_t events);
  void read(int peer);
  void end_of_stream(int peer);
  bool pull_some();
  bool pull_chunk(Pull& pull);

  // Failure and end.
  void check_silence();
  void note_failure(int peer, std::string reason);
  bool report_failures();
  void lose(int peer, ErrorKind kind, const std::string& reason);
  void condemn(int peer, const std::string& reason);
  void handle_condemned(int peer);
  void close(int peer, Link::State state);
  void release_pulls();
  void say_goodbye();
  bool has_unsent() const;
  void close_quietly(Link& link);

  Buffer landing_for(int source, std::span<const std::byte> head, std::span<const Buffer> arrived, std::size_t segment,
                     std::uint64_t bytes) override;
  void take_message(int source, Message message) override;
  void take_pull_order(int source, PullOrder order) override;
  void take_pulled(int source, std::uint64_t number) override;
  void take_goodbye(int source) override;

  void take_connection(int peer, Fd fd, bool can_pull) override;
  void take_failure(int peer, const std::string& reason) override;

  void hold_for_fork() noexcept override { mutex_.lock(); }
  void release_after_fork() noexcept override { mutex_.unlock(); }
  void forget_in_child() noexcept override;

  const TcpOptions options_;
  const bool has_checksums_;
  const Token token_;
  int rank_ = 0;
  Inbox::Settings settings_;
  Placement placement_;
  std::recursive_mutex mutex_;  // recursive: what poll() delivers may make the engine send
  std::atomic<bool> is_in_child_ = false;
  MessageSink* sink_ = nullptr;
  bool is_leaving_ = false;  ///< what arrives is dropped
  Poller poller_;
  std::deque<Link> links_;  // a deque: links stay where they are
  Fd listener_;
  std::optional<Greeter> greeter_;
  double next_check_seconds_ = 0;  ///< of silence
  PoolDeque<Pull> pulls_;
  PoolVector<Failure> failures_;
  PoolVector<Arrival> early_;           ///< arrived before attach()
  PoolVector<Message> parked_;          ///< a lost peer may still read them
  std::optional<Message> last_poison_;  ///< that arrived
  Buffer scratch_ = Buffer::allocate(kScratchBytes);
  ForkWatch fork_watch_;
};

}  // namespace tulle
