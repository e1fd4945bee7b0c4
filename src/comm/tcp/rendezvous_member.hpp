// What every rendezvous of this library knows about the job.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "tulle/base/error.hpp"
#include "tulle/comm/rendezvous.hpp"

namespace tulle {

class RendezvousMember : public Rendezvous {
 public:
  int rank() const override { return rank_; }
  int size() const override { return size_; }

 protected:
  /// Throws bad_input naming `kind` unless 0 <= rank < size.
  RendezvousMember(std::string_view kind, int rank, int size) : rank_(rank), size_(size) {
    if (size >= 1 && rank >= 0 && rank < size) return;
    throw Error(ErrorKind::bad_input, fmt::format("{}: there is no rank {} in a job of size {}", kind, rank, size));
  }

 private:
  int rank_;
  int size_;
};

}  // namespace tulle
