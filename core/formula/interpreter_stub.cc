#include "formula/interpreter.h"
namespace opdock::formula {
struct Program {};
Interpreter::Interpreter(const Graph&) {}
int64_t Interpreter::pieces(const Space&) const {
  return 1;
}
int64_t Interpreter::grain(const Space&) const {
  return 1;
}
void Interpreter::run(const Space&, const void* const*, void* const*, const Value*, int64_t,
                      int64_t) const {
  throw Error("no interpreter yet");
}
}  // namespace opdock::formula
