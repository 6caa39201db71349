// Building blocks of the JSON reports; docs/reference/verdicts.md describes their members.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/guarded.h"
#include "chain/settings.h"
#include "discover/catalog.h"
#include "facts/machine.h"
#include "nlohmann/json.hpp"
#include "opdock/opdock.h"

namespace opdock {

using Report = nlohmann::ordered_json;

Report to_json(const Reason& reason);
Report to_json(const std::vector<Reason>& reasons);

// Returns "cpu" or "cuda:0"; "cuda" if this machine has no such GPU.
std::string device_name(const DeviceVerdict& device);

// Returns the candidate. For a machine that is only described, run-time compilation counts in its
// verdict.
Candidate counted(const Candidate& candidate, const opdock_runtime& runtime);  // (explain.cc)

// Returns one plugin as `opdock list` shows it.
Report summary(const Candidate& candidate);
// Returns one source plugin, likewise; "verdict" is "buildable" if nothing speaks against a build.
Report summary(const SourcePlugin& source);
// Returns one file as `opdock inspect` shows it: the summary and the file's properties.
Report details(const Candidate& candidate);
// Returns how an op or plugin was resolved, or would be. Starts nothing. (explain.cc)
Report explanation(opdock_runtime* runtime, const std::string& name);
// Returns what this machine has, and what is missing for what. setting_problems: from
// read_settings().
Report diagnosis(const Catalog& catalog, const MachineFacts& machine, const SearchOptions& search,
                 const Settings& settings, const std::vector<std::string>& setting_problems);
// {"build": {"value", "from"}, …}
Report to_json(const Settings& settings);

// Throws Error if the argument of that name is NULL.
void need(const void* argument, const char* name, const char* wanted = "a value");
// Returns the report's text, to be freed with opdock_free.
char* to_c_text(const Report& json);

// Implements a C function that reports: puts the text of make()'s report into *out. A thrown
// opdock::Error becomes its own status.
template <class Make>
opdock_status report(const Make& make, char** out, const ErrorBuffer& error) noexcept {
  return guarded(error, [&] {
    need(out, "out", "a place for the text");
    *out = nullptr;
    *out = to_c_text(make());
    return OPDOCK_OK;
  });
}

}  // namespace opdock
