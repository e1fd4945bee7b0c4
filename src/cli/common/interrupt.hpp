// Ctrl-C as a wish: commands that train end their step, save and leave.
#pragma once

namespace tulle::cli {

/// From here on Ctrl-C, and what mpirun sends to the ranks when it gets one, only sets a mark. A second one kills as
/// usual.
void catch_interrupts();
bool is_interrupted();

}  // namespace tulle::cli
