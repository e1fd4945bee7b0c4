#include "nn/worker_report.hpp"

#include <cstring>
#include <span>

namespace tulle::nn {

void WorkerCosts::add(const WorkerCosts& others) {
  seconds += others.seconds;
  exposed_seconds += others.exposed_seconds;
  start_seconds += others.start_seconds;
  bytes_sent += others.bytes_sent;
  bytes_received += others.bytes_received;
  pushed += others.pushed;
  pulled += others.pulled;
  dropped += others.dropped;
}

namespace {

enum class Kind : std::uint8_t { report = 1, words = 2 };

Buffer byte_of(Kind kind) {
  const std::byte bytes[] = {static_cast<std::byte>(kind)};
  return Buffer::copy_of(bytes);
}

}  // namespace

Segments encode_message(const WorkerMessage& message) {
  Segments segments;
  segments.push_back(byte_of(message.report ? Kind::report : Kind::words));
  if (message.report) {
    segments.push_back(Buffer::copy_of(std::as_bytes(std::span(&*message.report, 1))));
  } else {
    segments.push_back(Buffer::copy_of(std::as_bytes(std::span(message.words))));
  }
  return segments;
}

std::optional<WorkerMessage> decode_message(const Segments& segments) {
  if (segments.size() != 2 || segments[0].size() != 1) return std::nullopt;
  const Buffer& body = segments[1];
  switch (static_cast<Kind>(segments[0].bytes()[0])) {
    case Kind::report: {
      if (body.size() != sizeof(WorkerReport)) return std::nullopt;
      WorkerMessage message{.report = WorkerReport(), .words = {}};
      std::memcpy(&*message.report, body.data(), sizeof(WorkerReport));
      return message;
    }
    case Kind::words:
      return WorkerMessage{.report = {}, .words = {reinterpret_cast<const char*>(body.data()), body.size()}};
  }
  return std::nullopt;
}

}  // namespace tulle::nn
