// SPDX-License-Identifier: Apache-2.0
#include "build/op_mismatch.h"

#include <fmt/format.h>

namespace opdock {
namespace {

// Returns whether GNU's or LLVM's linker reports in `log` that `symbol` is undefined.
bool is_undefined(std::string_view log, const std::string& symbol) {
  for (const char* begin :
       {"undefined reference to `", "undefined reference to '", "undefined symbol: "}) {
    if (log.find(begin + symbol) != log.npos) return true;
  }
  return false;
}

}  // namespace

std::optional<Reason> find_op_mismatch(std::string_view log, const std::string& error,
                                       const std::vector<std::string>& ops) {
  const size_t parameters = error.find(": the parameters of "),
               wanted_at = error.find(": wanted void ", parameters);
  if (parameters != error.npos && wanted_at != error.npos) {
    const size_t begin = wanted_at + std::string_view(": wanted ").size();
    std::string wanted = error.substr(begin, error.find('\n', begin) - begin);
    if (wanted.ends_with('"')) wanted.pop_back();  // clang quotes the message
    return make_reason(Code::kBuildOp, error, wanted);
  }
  if (error.find("opdock::ops_in_plugin_toml'") != error.npos) {
    return make_reason(Code::kBuildOp, error,
                       fmt::format("an op that plugin.toml declares: {}", fmt::join(ops, ", ")));
  }
  for (const std::string& op : ops) {
    const std::string plan = "opdock_" + op + "_plan", run = "opdock_" + op + "_run";
    if (!is_undefined(log, plan) && !is_undefined(log, run)) continue;
    return make_reason(
        Code::kBuildOp,
        fmt::format("no code of the op \"{}\", which plugin.toml declares\n{}", op, error),
        fmt::format("OPDOCK_OP({}, …) in a source that meson.build names, or in C the functions {} "
                    "and {}",
                    op, plan, run));
  }
  return std::nullopt;
}

}  // namespace opdock
