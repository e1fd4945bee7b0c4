// Measurements by name: gathered from all ranks, and their quartiles given back to them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tulle/base/buffer.hpp"
#include "tulle/base/quartiles.hpp"

namespace tulle {

using Summary = std::map<std::string, Quartiles>;

/// REQUIRES: the same names on all ranks, also where a rank has no sample for one. Then counts and numbers say
/// everything, and only they travel.
class Samples {
 public:
  std::vector<double>& of(const std::string& name) { return samples_[name]; }

  Buffer pack() const;
  /// Adds those that rank `from` packed. Throws bad_message where they are something else.
  void add(const Buffer& packed, int from);

  /// REQUIRES: every name has a sample.
  Summary summary() const;
  static Buffer pack(const Summary& summary);
  /// A summary of the same names that rank `from` packed. Throws as add() does.
  Summary unpack(const Buffer& packed, int from) const;

 private:
  std::map<std::string, std::vector<double>> samples_;
};

}  // namespace tulle
