#include "collectives/tree.hpp"

namespace tulle {

void pass_down(Exchange& exchange, const patterns::Binomial& tree, const Part& part, Step step) {
  int largest = 1;
  while (tree.has_child(largest)) largest *= 2;
  for (int bit = largest / 2; bit >= 1; bit /= 2) exchange.send(tree.child(bit), step, part);
}

Part open_and_pass_down(Exchange& exchange, const patterns::Binomial& tree, Incoming message, Step step) {
  Segments frame = message.segments;
  Part part = exchange.open(std::move(message));
  part.frame = std::move(frame);
  pass_down(exchange, tree, part, step);
  part.frame.clear();
  return part;
}

}  // namespace tulle
