// MPI requests under way, each with what it belongs to.
#pragma once

#include <mpi.h>

#include <exception>
#include <utility>

#include "tulle/base/buffer.hpp"

namespace tulle {

/// An Owner keeps alive the memory that its requests read or write; it is dropped with the last of them.
template <class Owner>
class RequestSet {
 public:
  bool empty() const { return requests_.empty(); }

  void add(MPI_Request request, Owner owner) {
    requests_.push_back(request);
    owners_.push_back(std::move(owner));
  }

  /// Calls `finished(owner, status, code)` for every request that is over; that may add more. True if any was. What it
  /// throws is thrown again once all were told.
  template <class Finished>
  bool test(Finished finished) {
    if (requests_.empty()) return false;
    indices_.resize(requests_.size());
    statuses_.resize(requests_.size());
    int count = 0;
    const int code =
        MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, indices_.data(), statuses_.data());
    if (count == MPI_UNDEFINED || count <= 0) return false;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      const auto index = static_cast<std::size_t>(indices_[i]);
      over_.push_back(std::move(owners_[index]));
      requests_[index] = MPI_REQUEST_NULL;  // as MPI does, except for some that failed
    }
    drop_null_requests();
    std::exception_ptr thrown;
    for (std::size_t i = 0; i < over_.size(); ++i) {
      try {
        // MPI sets the code in the status only where it returns MPI_ERR_IN_STATUS.
        finished(over_[i], statuses_[i], code == MPI_ERR_IN_STATUS ? statuses_[i].MPI_ERROR : code);
      } catch (...) {
        if (!thrown) thrown = std::current_exception();
      }
    }
    over_.clear();
    if (thrown) std::rethrow_exception(thrown);
    return true;
  }

  void cancel() {
    for (MPI_Request& request : requests_) MPI_Cancel(&request);
  }

 private:
  void drop_null_requests() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      if (kept != i) {
        requests_[kept] = requests_[i];
        owners_[kept] = std::move(owners_[i]);
      }
      ++kept;
    }
    requests_.resize(kept);
    owners_.erase(owners_.begin() + static_cast<std::ptrdiff_t>(kept), owners_.end());
  }

  PoolVector<MPI_Request> requests_;
  PoolVector<Owner> owners_;
  PoolVector<int> indices_;
  PoolVector<MPI_Status> statuses_;
  PoolVector<Owner> over_;  ///< empty between calls
};

}  // namespace tulle
