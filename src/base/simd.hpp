// The one place where Highway's choice of instruction set is overridden.
#pragma once

namespace tulle {

/// Restricts dynamic dispatch to the instruction set that the environment variable TULLE_SIMD names: scalar, ssse3,
/// sse4, avx2 or avx3. Call before each dispatch; reads the variable once. Throws bad_input that lists what this CPU
/// has.
void apply_simd_environment();

}  // namespace tulle
