// Tulle on TCP: a communicator for jobs without MPI. docs/tcp.md says how to use it and what travels.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tulle/comm/communicator.hpp"
#include "tulle/comm/rendezvous.hpp"

#pragma GCC visibility push(default)
namespace tulle {

/// Whether large segments between processes of one host are read from the sender's memory.
enum class HostReads {
  where_allowed,  ///< by process_vm_readv, where a test read at connect succeeds; else by the socket
  never,
};

/// How messages travel on TCP. REQUIRES: `detach_bytes` and `pull_bytes` are equal on all ranks; connect() tells if
/// not.
struct TcpOptions {
  /// The interface, or the address of one, on which other hosts reach this one. Empty: TULLE_INTERFACE, else by the
  /// route to where the ranks meet, else any.
  std::string interface = {};
  /// Ports to listen on: "20000-20099" or "20000". Empty: TULLE_PORTS, else whichever is free.
  std::string ports = {};
  /// How long connect() may take once the ranks have met.
  double deadline_seconds = 60;
  /// In jobs of more ranks than this, two ranks connect when one first sends to the other: P - 1 sockets a rank meet
  /// limits of file descriptors. A rank that dies is then known to those who are connected with it.
  int lazy_above = 64;

  /// Segments of this size or more are received where they are wanted; smaller ones are received together.
  std::uint64_t detach_bytes = std::uint64_t{32} << 10;
  HostReads host_reads = HostReads::where_allowed;
  /// Segments of this size or more are read from the sender's memory. Too small: the acknowledgement costs more than
  /// the copy through the kernel that is saved. At least detach_bytes.
  std::uint64_t pull_bytes = std::uint64_t{64} << 10;
  /// As much is read at a time, between looks at other peers.
  std::uint64_t pull_chunk_bytes = std::uint64_t{1} << 20;
  /// Messages that announce more are refused: the peer is then taken to be out of its mind. 0: this host's memory.
  std::uint64_t most_message_bytes = 0;

  /// Whether a CRC-32C follows the payload of each message on a socket. The receiver turns a flipped bit into an error
  /// on all ranks; TCP's own sum of 16 bits does not see every one. Heads and lengths always have one; memory that is
  /// read on one host has none. Empty: TULLE_CHECKSUM, "on", "off" or "all", else on. Each rank decides for what it
  /// sends.
  std::optional<bool> checksum = {};

  /// Of the kernel for each connection. 0: as the kernel likes, which grows them as needed.
  int send_buffer_bytes = 0;
  int receive_buffer_bytes = 0;
  /// A peer whose host does not acknowledge anything for so long is lost. Smaller: a short outage ends the job.
  /// Larger: a link that went down is known later.
  double silence_seconds = 10;
  /// How a rank that was stopped or is wedged becomes known: its host answers for it, so that nothing else tells. Off:
  /// TULLE_HEARTBEAT, "INTERVAL/LIMIT" in seconds, else none. On: a progress thread is started.
  Heartbeat heartbeat = {};
  /// How long the end of a communicator waits for messages that have not left yet.
  double farewell_seconds = 1;

  /// Called for every connection that was refused, with the other side's address and the reason. It runs inside of
  /// whichever call makes progress and must not call into the library.
  std::function<void(const std::string& address, const std::string& reason)> on_refusal = {};
};

/// Connects the ranks that `rendezvous` names. Collective: one allgather, then P - 1 connections a rank, or none where
/// lazy_above says so. Blocks no longer than the deadlines. Where TULLE_PROFILE is set for rank 0, all ranks get the
/// profile of that file, or throw what load_profile() throws. The rendezvous is not needed afterwards.
/// The communicator may be used from several threads, one call at a time each, and allows a progress thread. In a
/// forked child its sockets are closed and calls throw.
/// Throws bad_input (options), mismatch (versions or options of ranks differ), deadline (who did not connect),
/// peer_failed (who cannot be reached), system.
Communicator connect(Rendezvous& rendezvous, const TcpOptions& options = {});
/// The same with environment_rendezvous().
Communicator connect(const TcpOptions& options = {});

}  // namespace tulle
#pragma GCC visibility pop
