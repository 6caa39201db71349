// The function of opdock.h that lists, verifies, collects, clears, exports and imports the cache.
// SPDX-License-Identifier: Apache-2.0
#include "cache/manage.h"
#include "chain/runtime.h"
#include "opdock/types.hpp"
#include "report/report.h"

namespace opdock {
namespace {

using cache::Layout;
using cache::Listed;
using cache::OpenedEntry;

const char* state_name(OpenedEntry::State state) {
  switch (state) {
    case OpenedEntry::kGood:
      return "good";
    case OpenedEntry::kNewer:
      return "newer";
    case OpenedEntry::kDamaged:
      return "damaged";
    default:
      return "unreadable";
  }
}

Report to_json(const Listed& listed) {
  return {{"kind", listed.variant.kind}, {"key", listed.variant.key},
          {"path", listed.variant.path}, {"bytes", listed.variant.bytes},
          {"used", listed.variant.used}, {"state", state_name(listed.state)},
          {"problem", listed.problem},   {"subject", listed.subject},
          {"maker", listed.maker},       {"created", listed.created}};
}

Report list(const Layout& layout, bool verify) {
  Report json;
  json["entries"] = Report::array();
  uint64_t bytes = 0;
  for (const Listed& listed : verify ? cache::verify(layout) : cache::list_entries(layout, false)) {
    json["entries"].push_back(to_json(listed));
    bytes += listed.variant.bytes;
  }
  json["bytes"] = bytes;
  return json;
}

// Performs the action. Returns nullopt on failure, with the causes in `reasons`.
std::optional<Report> act(const std::string& action, const Layout& layout, uint64_t max_bytes,
                          const std::string& file, std::vector<Reason>* reasons) {
  if (action == "ls" || action == "verify") return list(layout, action == "verify");
  if (action == "gc") {
    const cache::Evicted done = cache::evict(layout, max_bytes);
    return Report{{"busy", done.busy},
                  {"removed", done.removed},
                  {"removed_bytes", done.removed_bytes},
                  {"bytes", done.kept_bytes},
                  {"in_use", done.in_use},
                  {"swept", done.swept}};
  }
  if (action == "clear") {
    const cache::Cleared done = cache::clear(layout);
    return Report{
        {"removed", done.removed}, {"removed_bytes", done.removed_bytes}, {"in_use", done.in_use}};
  }
  if (action == "export") {
    cache::Exported done;
    if (!cache::export_entries(layout, file, &done, reasons)) return std::nullopt;
    return Report{{"exported", done.entries}, {"bytes", done.bytes}, {"left_out", done.left_out}};
  }
  cache::Imported done;
  const bool trust = action == "import-trusted";
  if (!cache::import_entries(layout, file, trust, &done, reasons)) return std::nullopt;
  return Report{{"imported", done.entries}, {"present", done.present}};
}

bool is_action(const std::string& action) {
  for (const char* known : {"ls", "gc", "clear", "verify", "export", "import", "import-trusted"}) {
    if (action == known) return true;
  }
  return false;
}

}  // namespace
}  // namespace opdock

opdock_status opdock_cache_json(const char* action, const char* file, char** out, char* error,
                                uint32_t error_size) {
  using namespace opdock;
  return report(
      [&] {
        const std::string what = action == nullptr ? "" : action,
                          path = file == nullptr ? "" : file;
        if (!is_action(what)) {
          throw Error(OPDOCK_INVALID_ARGUMENT,
                      "action: found \"" + what +
                          "\", wanted ls, gc, clear, verify, export, import or import-trusted");
        }
        if (path.empty() && (what == "export" || what.starts_with("import"))) {
          throw Error(OPDOCK_INVALID_ARGUMENT, "file: found none, wanted the path of an archive");
        }
        std::vector<Reason> reasons;
        const CacheOptions options = cache_options_from_environment(&reasons);
        const std::unique_ptr<Cache> opened = Cache::open(options, &reasons);
        for (const Reason& reason : reasons) {
          const bool is_setting = reason.code == Code::kCacheSetting;
          if (!is_setting && !opened->folder().empty()) continue;
          throw Error(is_setting ? OPDOCK_INVALID_ARGUMENT : OPDOCK_INCOMPATIBLE, to_text(reason));
        }
        Report json = {{"folder", opened->folder()}, {"max_bytes", options.max_bytes}};
        const std::optional<Report> done =
            act(what, {opened->folder()}, options.max_bytes, path, &reasons);
        if (done) {
          json.update(*done);
          return json;
        }
        std::string text;
        for (const Reason& reason : reasons) text += (text.empty() ? "" : " ") + to_text(reason);
        throw Error(OPDOCK_INCOMPATIBLE, text);
      },
      out, {error, error_size});
}
