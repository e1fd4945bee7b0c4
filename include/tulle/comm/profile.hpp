// The constants of a network and a machine, in which costs are expressed.
//
// Threads: a plain value; each object is used by one thread at a time, or read by several.
#pragma once

#pragma GCC visibility push(default)
namespace tulle {

/// What a probe measured, or the defaults of a transport. It must be equal on all ranks of a communicator, as ranks
/// choose rows by it. No constant is negative.
struct Profile {
  double alpha_seconds = 2e-6;           ///< α: per message
  double beta_seconds_per_byte = 1e-10;  ///< β: per byte
  double node_alpha_seconds = 2e-6;      ///< α between two ranks of one node
  double node_beta_seconds_per_byte = 1e-10;
  double exchange_factor = 1;            ///< how much longer a byte takes where two ranks send to each other at once
  double gamma_sparse_seconds = 3.3e-9;  ///< γ: per (index, value) pair that a kernel touches
  double gamma_dense_seconds = 0.3e-9;   ///< γ: per value that a dense kernel touches

  double gamma_delta_vbyte_seconds = 2e-9;  ///< γ: per index that is encoded and decoded
  double gamma_bitmap_seconds = 2e-9;
  double gamma_rice_seconds = 4e-9;
  double gamma_select_seconds = 0.5e-9;  ///< γ: per value that a selection looks at

  friend bool operator==(const Profile&, const Profile&) = default;
};

}  // namespace tulle
#pragma GCC visibility pop
