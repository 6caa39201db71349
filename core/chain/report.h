// The JSON reports' building blocks: docs/verdicts.md describes the members.
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

// "cpu", "cuda:0"; "cuda" where no such GPU is here.
std::string device_name(const DeviceVerdict& device);

// The candidate; for a machine that is described with what run-time compilation adds to its
// verdict.
Candidate counted(const Candidate& candidate, const opdock_runtime& runtime);  // (explain.cc)

// One plugin as `opdock list` shows it.
Report summary(const Candidate& candidate);
// One source plugin, likewise: "verdict" is "buildable" where nothing speaks against a build.
Report summary(const SourcePlugin& source);
// One file as `opdock inspect` shows it: the summary, and what the file is.
Report details(const Candidate& candidate);
// How an op or plugin is resolved: what happened, or would. Starts nothing. (explain.cc)
Report explanation(opdock_runtime* runtime, const std::string& name);
// What this machine has, and what is missing for what. setting_problems: of read_settings().
Report diagnosis(const Catalog& catalog, const MachineFacts& machine, const SearchOptions& search,
                 const Settings& settings, const std::vector<std::string>& setting_problems);
// {"build": {"value", "from"}, …}
Report to_json(const Settings& settings);

// Throws Error if the argument of that name is NULL.
void need(const void* argument, const char* name, const char* wanted = "a value");
// The report's text, to be freed with opdock_free.
char* to_c_text(const Report& json);

// What a C function that reports answers: puts the text of make()'s report into *out. An
// opdock::Error that is thrown becomes its own status.
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
