#include "comm/mpi/mpi_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <thread>
#include <utility>

#include "comm/mpi/mpi_error.hpp"
#include "tulle/base/error.hpp"

namespace tulle {
namespace {

constexpr int kEnvelopeTag = 1, kBodyTag = 2;

// Envelopes taken in one poll. A flood from one peer must not keep the engine from resuming what is ready.
constexpr int kMostEnvelopesPerPoll = 64;

// What a destructor gives messages that are still under way: long enough for one that is being taken, short enough
// for a peer that is dead.
constexpr double kWindUpSeconds = 0.2;

MPI_Comm duplicate(MPI_Comm comm) {
  require_mpi_is_running();
  MPI_Comm copy = MPI_COMM_NULL;
  require_mpi("MPI_Comm_dup", MPI_Comm_dup(comm, &copy));
  require_mpi("MPI_Comm_set_errhandler", MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN));
  return copy;
}

int size_of_comm(MPI_Comm comm) {
  int size = 0;
  require_mpi("MPI_Comm_size", MPI_Comm_size(comm, &size));
  return size;
}

int rank_in_comm(MPI_Comm comm) {
  int rank = 0;
  require_mpi("MPI_Comm_rank", MPI_Comm_rank(comm, &rank));
  return rank;
}

// The same on all ranks, as profiles must be: that of the fullest node.
MpiTransport::Placement place_of(MPI_Comm comm) {
  MPI_Comm node = MPI_COMM_NULL;
  require_mpi("MPI_Comm_split_type", MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
  const int ranks_here = size_of_comm(node);
  int lowest_here = rank_in_comm(comm);
  require_mpi("MPI_Bcast", MPI_Bcast(&lowest_here, 1, MPI_INT, 0, node));
  MPI_Comm_free(&node);
  PoolVector<int> nodes(static_cast<std::size_t>(size_of_comm(comm)));
  require_mpi("MPI_Allgather", MPI_Allgather(&lowest_here, 1, MPI_INT, nodes.data(), 1, MPI_INT, comm));
  const double here = static_cast<double>(ranks_here) / std::max(1u, std::thread::hardware_concurrency());
  double fullest = 0;
  require_mpi("MPI_Allreduce", MPI_Allreduce(&here, &fullest, 1, MPI_DOUBLE, MPI_MAX, comm));
  return {ranks_here == size_of_comm(comm), std::max(1.0, fullest), std::move(nodes)};
}

// Nobody waits for these, so that a receiver may be gone before they arrive. Bytes that are no message have no kind.
bool may_linger(const Message& message) {
  if (message.head.size() < kMessageHeaderBytes) return false;
  const MessageKind kind = kind_of_own_head(message.head.bytes());
  return kind == MessageKind::poison || kind == MessageKind::beat;
}

}  // namespace

MpiTransport::MpiTransport(MPI_Comm comm, const MpiOptions& options)
    : options_(options),
      comm_(duplicate(comm)),
      rank_(rank_in_comm(comm_)),
      placement_(place_of(comm_)),
      sources_(static_cast<std::size_t>(size_of_comm(comm_))),
      allreduce_(comm_, options_) {}

// Memory that MPI may still read or write is never freed, and neither is a communicator whose messages may still
// arrive: MPI would give its number to the next one, which would then receive them.
MpiTransport::~MpiTransport() {
  const bool running = mpi_is_running();
  const bool quiet = running && wind_up();
  if (!sends_.empty()) new auto(std::move(sends_));
  if (!receives_.empty()) new auto(std::move(receives_));
  const bool reduced = allreduce_.park();
  if (quiet && reduced && !messages_may_linger_) MPI_Comm_free(&comm_);
}

// True when nothing is under way any more.
bool MpiTransport::wind_up() {
  if (!receives_.empty()) messages_may_linger_ = true;
  receives_.cancel();
  const double end = now() + kWindUpSeconds;
  while (!sends_.empty() || !receives_.empty()) {
    sends_.test([](auto&, const MPI_Status&, int) {});
    receives_.test([](auto&, const MPI_Status&, int) {});
    if (now() > end) return false;
  }
  return true;
}

// ---------------------------------------------------------------- out

void MpiTransport::send(int peer, Message message) {
  require_mpi_is_running();
  for (const Buffer& segment : message.segments) {
    if (segment.is_phantom()) throw Error(ErrorKind::unsupported, "a phantom buffer cannot be sent by MPI");
  }
  if (may_linger(message)) messages_may_linger_ = true;
  const auto departure =
      std::allocate_shared<Departure>(PoolAllocator<Departure>(), peer, std::move(message), Buffer());
  departure->envelope = seal_envelope(departure->message, options_);
  const Buffer& envelope = departure->envelope;
  post_send(departure, envelope.data(), static_cast<int>(envelope.size()), kEnvelopeTag);

  EnvelopeWalk walk(departure->message.head.size(), options_);
  for (const Buffer& segment : departure->message.segments) {
    if (walk.place(segment.size())) continue;
    for_each_piece(segment.size(), options_, [&](std::uint64_t offset, int bytes) {
      post_send(departure, segment.data() + offset, bytes, kBodyTag);
    });
  }
}

void MpiTransport::post_send(const std::shared_ptr<Departure>& departure, const std::byte* data, int bytes, int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  int done = 0;
  int code = MPI_Isend(data, bytes, MPI_BYTE, departure->peer, tag, comm_, &request);
  // A small message has usually left already. Asking at once saves the operation a round of progress.
  if (code == MPI_SUCCESS) code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  if (code != MPI_SUCCESS) {
    // Told to the engine by the next poll: it may be in the middle of something. Until then the message counts as
    // unsent, so that its operation does not end well.
    failures_.push_back({departure->peer, ErrorKind::peer_failed, describe_mpi_error("MPI_Isend", code)});
    new auto(departure);
  } else if (done == 0) {
    sends_.add(request, departure);
  }
}

bool MpiTransport::finish_sends() {
  return sends_.test([this](const std::shared_ptr<Departure>& departure, const MPI_Status&, int code) {
    if (code != MPI_SUCCESS) lose(departure->peer, ErrorKind::peer_failed, describe_mpi_error("MPI_Isend", code));
  });
}

// ---------------------------------------------------------------- in

bool MpiTransport::poll() {
  require_mpi_is_running();
  bool happened = report_failures();
  happened |= finish_sends();
  for (int i = 0; i < kMostEnvelopesPerPoll && accept_envelope(); ++i) happened = true;
  happened |= finish_receives();
  return happened;
}

bool MpiTransport::accept_envelope() {
  int found = 0, bytes = 0;
  MPI_Status status;
  if (MPI_Iprobe(MPI_ANY_SOURCE, kEnvelopeTag, comm_, &found, &status) != MPI_SUCCESS || found == 0) return false;
  const int rank = status.MPI_SOURCE;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  Source& source = sources_[static_cast<std::size_t>(rank)];

  const auto arrival =
      std::allocate_shared<Arrival>(PoolAllocator<Arrival>(), rank, Buffer::allocate(static_cast<std::size_t>(bytes)));
  MPI_Request request = MPI_REQUEST_NULL;
  int done = 0;
  int code = MPI_Irecv(arrival->envelope.mutable_data(), bytes, MPI_BYTE, rank, kEnvelopeTag, comm_, &request);
  if (code == MPI_SUCCESS) code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  if (code != MPI_SUCCESS) {
    lose(rank, ErrorKind::peer_failed, describe_mpi_error("MPI_Irecv", code));
    return true;
  }
  source.unopened.push_back(arrival);
  if (done != 0) {
    arrival->has_envelope = true;
    open_envelopes(source);
  } else {
    receives_.add(request, {arrival, bytes});
  }
  return true;
}

bool MpiTransport::finish_receives() {
  return receives_.test([this](const Piece& piece, const MPI_Status& status, int code) {
    Arrival& arrival = *piece.arrival;
    Source& source = sources_[static_cast<std::size_t>(arrival.source)];
    int bytes = 0;
    if (code == MPI_SUCCESS) MPI_Get_count(&status, MPI_BYTE, &bytes);
    if (code != MPI_SUCCESS) {
      lose(arrival.source, ErrorKind::peer_failed, describe_mpi_error("MPI_Irecv", code));
    } else if (bytes != piece.bytes) {
      lose(arrival.source, ErrorKind::bad_message,
           fmt::format("a segment is cut off: {} of {} bytes", bytes, piece.bytes));
    } else if (!arrival.has_envelope) {
      arrival.has_envelope = true;
      open_envelopes(source);
    } else if (--arrival.missing_pieces == 0 && !source.lost) {
      sink_->deliver(arrival.source, std::move(arrival.message));
    }
  });
}

// Receives for bodies must be posted in the order in which their envelopes were matched, which is the order in which
// the peer sent both; but envelopes may become complete in another order.
void MpiTransport::open_envelopes(Source& source) {
  while (!source.unopened.empty() && source.unopened.front()->has_envelope) {
    const std::shared_ptr<Arrival> arrival = std::move(source.unopened.front());
    source.unopened.pop_front();
    if (source.lost) continue;
    try {
      receive_bodies(arrival);
    } catch (const std::exception& error) {  // also bad_alloc, for a length that no memory can hold
      lose(arrival->source, ErrorKind::bad_message, error.what());
    }
  }
}

void MpiTransport::receive_bodies(const std::shared_ptr<Arrival>& arrival) {
  OpenedEnvelope opened = open_envelope(arrival->envelope, options_);
  arrival->message = std::move(opened.message);
  Message& message = arrival->message;
  // What is still to come must not look as if it had arrived: landings are asked for first, and put in place then.
  PoolVector<Buffer> landings(opened.lengths.size());
  for (std::size_t i = 0; i < landings.size(); ++i) {
    const bool is_detached = message.segments[i].size() != opened.lengths[i];
    if (is_detached) landings[i] = landing_of(*arrival, i, opened.lengths[i]);
  }
  for (std::size_t i = 0; i < landings.size(); ++i) {
    if (landings[i].empty()) continue;
    message.segments[i] = std::move(landings[i]);
    receive_segment(arrival, message.segments[i]);
  }
  if (arrival->missing_pieces == 0) sink_->deliver(arrival->source, std::move(message));
}

Buffer MpiTransport::landing_of(const Arrival& arrival, std::size_t segment, std::uint64_t bytes) {
  const Message& message = arrival.message;
  Buffer landing = sink_->landing_for(arrival.source, message.head.bytes(), message.segments, segment, bytes);
  return landing.size() != bytes || landing.is_phantom() ? Buffer::allocate(bytes) : landing;
}

void MpiTransport::receive_segment(const std::shared_ptr<Arrival>& arrival, Buffer& landing) {
  std::byte* const memory = landing.data_for_landing();
  for_each_piece(landing.size(), options_, [&](std::uint64_t offset, int length) {
    MPI_Request request = MPI_REQUEST_NULL;
    require_mpi("MPI_Irecv", MPI_Irecv(memory + offset, length, MPI_BYTE, arrival->source, kBodyTag, comm_, &request));
    receives_.add(request, {arrival, length});
    arrival->missing_pieces += 1;
  });
}

// ---------------------------------------------------------------- failure

bool MpiTransport::report_failures() {
  if (failures_.empty()) return false;
  const PoolVector<Failure> failures = std::exchange(failures_, {});  // telling the peers may fail again
  for (const Failure& failure : failures) lose(failure.peer, failure.kind, failure.reason);
  return true;
}

void MpiTransport::lose(int peer, ErrorKind kind, const std::string& reason) {
  messages_may_linger_ = true;
  Source& source = sources_[static_cast<std::size_t>(peer)];
  if (std::exchange(source.lost, true)) return;
  sink_->fail_peer(peer, kind, reason);
}

// ---------------------------------------------------------------- what the rest of Tulle asks

// Until a probe measures: shared memory between processes, or Gigabit Ethernet. Where ranks share cores, computing and
// copying take as many times as long.
// Any call makes MPI progress; this one takes nothing.
void MpiTransport::push() {
  if (!mpi_is_running()) return;  // poll() tells
  int found = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &found, MPI_STATUS_IGNORE);
}

Profile MpiTransport::default_profile() const {
  Profile profile;
  profile.gamma_sparse_seconds *= placement_.ranks_per_core;
  profile.gamma_dense_seconds *= placement_.ranks_per_core;
  profile.gamma_delta_vbyte_seconds *= placement_.ranks_per_core;
  profile.gamma_bitmap_seconds *= placement_.ranks_per_core;
  profile.gamma_rice_seconds *= placement_.ranks_per_core;
  profile.gamma_select_seconds *= placement_.ranks_per_core;
  profile.node_alpha_seconds = 5e-6 * placement_.ranks_per_core;
  profile.node_beta_seconds_per_byte = 1e-10 * placement_.ranks_per_core;
  profile.alpha_seconds = placement_.on_one_node ? profile.node_alpha_seconds : 30e-6;
  profile.beta_seconds_per_byte = placement_.on_one_node ? profile.node_beta_seconds_per_byte : 8.5e-9;
  // One connection then carries data and acknowledgements both ways; measured with Open MPI's TCP.
  profile.exchange_factor = placement_.on_one_node ? 1 : 2;
  return profile;
}

// Engines that end after MPI does have nobody to take leave of.
bool MpiTransport::is_reached(int) const { return mpi_is_running(); }

void MpiTransport::require_progress_thread() const {
  int level = MPI_THREAD_SINGLE;
  require_mpi("MPI_Query_thread", MPI_Query_thread(&level));
  if (level == MPI_THREAD_MULTIPLE) return;
  throw Error(ErrorKind::unsupported,
              "a progress thread needs MPI_THREAD_MULTIPLE: ask for it in MPI_Init_thread, or start the program with "
              "tulle::MpiSession(MPI_THREAD_MULTIPLE); some builds of MPI do not have it");
}

}  // namespace tulle
