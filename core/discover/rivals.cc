// SPDX-License-Identifier: Apache-2.0
#include "discover/rivals.h"

#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <utility>

#include "discover/order.h"
#include "discover/places.h"
#include "fmt/format.h"

namespace opdock {
namespace {

bool matches_any(const std::optional<std::string>& globs, const std::string& name) {
  for (const std::string& glob : split_list(globs.value_or(""))) {
    if (fnmatch(glob.c_str(), name.c_str(), 0) == 0) return true;
  }
  return false;
}

// Adds a notice at the end, since notices do not change the verdict.
void notice(Candidate* candidate, Code code, std::string found, std::string wanted) {
  candidate->verdict.reasons.push_back(make_reason(code, std::move(found), std::move(wanted)));
}

// An op of the candidate's note, on one kind of device.
using Service = std::pair<std::string_view, Backend>;

std::vector<Service> services(const Candidate& candidate) {
  std::vector<Service> found;
  if (!candidate.file.note || candidate.verdict.state != State::kUsable) return found;
  for (const OpClaim& op : candidate.file.note->ops) {
    for (const DeviceVerdict& device : candidate.verdict.devices) {
      const Service service{op.name, device.backend};
      const bool is_claimed = std::find(op.devices.begin(), op.devices.end(),
                                        to_text(device.backend)) != op.devices.end();
      if (device.state != State::kUsable || !is_claimed) continue;
      if (std::find(found.begin(), found.end(), service) == found.end()) found.push_back(service);
    }
  }
  return found;
}

}  // namespace

void reject(Candidate* candidate, Reason reason) {
  candidate->verdict.state = State::kRejected;
  candidate->verdict.reasons.insert(candidate->verdict.reasons.begin(), std::move(reason));
}

std::optional<Reason> deselection(const SearchEnvironment& environment, const std::string& name) {
  const std::optional<std::string>& select = environment.select;
  const std::optional<std::string>& disable = environment.disable;
  if (select && !matches_any(select, name)) {
    return make_reason(Code::kDeselected, fmt::format("plugin {}", name),
                       fmt::format("a name that OPDOCK_PLUGINS_SELECT={} matches", *select));
  }
  if (!select && disable && matches_any(disable, name)) {
    return make_reason(
        Code::kDeselected, fmt::format("plugin {}", name),
        fmt::format("a name that OPDOCK_PLUGINS_DISABLE={} does not match", *disable));
  }
  return std::nullopt;
}

void mark_deselected(const SearchEnvironment& environment, const Candidates& candidates) {
  if (!environment.select && !environment.disable) return;
  for (const std::shared_ptr<Candidate>& candidate : candidates) {
    if (!candidate->file.note) continue;
    std::optional<Reason> reason = deselection(environment, candidate->file.note->name);
    if (reason) reject(candidate.get(), std::move(*reason));
  }
}

void mark_duplicates(const Candidates& candidates) {
  std::map<std::pair<uint64_t, uint64_t>, const Candidate*> files;
  std::map<std::pair<std::string_view, Version>, const Candidate*> plugins;
  for (const std::shared_ptr<Candidate>& candidate : candidates) {
    if (candidate->stamp.inode == 0) continue;
    const auto [file, is_new_file] =
        files.try_emplace({candidate->stamp.device, candidate->stamp.inode}, candidate.get());
    if (!is_new_file) {
      reject(candidate.get(), make_reason(Code::kDuplicateFile, "the file of " + file->second->path,
                                          "another file"));
      continue;
    }
    if (!candidate->file.note || candidate->verdict.state == State::kRejected) continue;
    const Note& note = *candidate->file.note;
    const auto [plugin, is_new_plugin] =
        plugins.try_emplace({note.name, note.version}, candidate.get());
    if (!is_new_plugin) {
      notice(candidate.get(), Code::kDuplicatePlugin,
             fmt::format("{} {} also in {}", note.name, note.version.text(), plugin->second->path),
             "one file for each version of a plugin");
    }
  }
}

void mark_superseded(const Candidates& candidates) {
  std::map<Service, const Candidate*> best;
  for (const std::shared_ptr<Candidate>& candidate : candidates) {
    for (const Service& service : services(*candidate)) {
      const auto [entry, is_first] = best.try_emplace(service, candidate.get());
      if (!is_first && is_better(*candidate, *entry->second)) entry->second = candidate.get();
    }
  }
  for (const std::shared_ptr<Candidate>& candidate : candidates) {
    for (const Service& service : services(*candidate)) {
      const Candidate* winner = best.at(service);
      if (winner == candidate.get()) continue;
      notice(candidate.get(), Code::kSuperseded,
             fmt::format("{} on {} comes from {} {} ({})", service.first, to_text(service.second),
                         winner->file.note->name, winner->file.note->version.text(), winner->path),
             "the newest usable version, the earlier folder among equals");
    }
  }
}

}  // namespace opdock
