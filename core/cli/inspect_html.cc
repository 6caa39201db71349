// opdock inspect --html: writes one page that opens anywhere.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "base/fd.h"
#include "base/texts.h"
#include "fmt/format.h"
#include "inspect_text.h"
#include "report_text.h"

namespace opdock::cli {
namespace {

constexpr const char* kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
)";

constexpr const char* kStyle = R"(
<style>
:root { color-scheme: light dark; --text: #1c1e21; --page: #ffffff; --line: #d5d9de; --dim: #5c646d;
        --good: #14713a; --bad: #b3261e; --unsure: #8a5a00; --row: #f4f6f8; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e7ea; --page: #16191c; --line: #3a4047; --dim: #9aa3ad;
          --good: #66c98d; --bad: #ff8a80; --unsure: #e5b567; --row: #1f2428; } }
body { color: var(--text); background: var(--page); font: 15px/1.45 system-ui, sans-serif;
       margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .35rem .7rem; border-bottom: 1px solid var(--line);
         vertical-align: top; }
th { color: var(--dim); font-weight: 600; white-space: nowrap; }
tr.more td { background: var(--row); }
code, .path { font: 13px/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
.good { color: var(--good); } .bad { color: var(--bad); } .unsure { color: var(--unsure); }
.dim { color: var(--dim); }
ul { margin: .3rem 0; padding-left: 1.2rem; }
summary { cursor: pointer; }
</style>
</head>
<body>
)";

// Escapes a text for HTML, because texts come from untrusted files.
std::string escaped(const std::string& text) {
  std::string safe;
  for (const char letter : printable(text)) {
    switch (letter) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += letter;
    }
  }
  return safe;
}

std::string member(const Report& object, const char* key, const char* missing = "") {
  return escaped(text_of(object, key, missing));
}

const char* verdict_class(const std::string& verdict) {
  return verdict == "usable" ? "good" : verdict == "rejected" ? "bad" : "unsure";
}

const char* code_class(const std::string& code) {
  return code == "native" || code == "ptx" ? "good"
         : code == "none"                  ? "bad"
         : code == "undecided"             ? "unsure"
                                           : "dim";
}

std::string cell(const std::string& text, const std::string& style) {
  return fmt::format("<td class=\"{}\">{}</td>", style, text);
}

std::string reasons_list(const Report& reasons) {
  if (reasons.empty()) return "";
  std::string list = "<ul>";
  for (const Report& reason : reasons) {
    const std::string severity = text_of(reason, "severity"), advice = member(reason, "advice");
    const bool is_told = !advice.empty() && advice != "nothing to do";
    list += fmt::format("<li><code class=\"{}\">{}</code>: {}{}</li>",
                        severity == "reject"      ? "bad"
                        : severity == "undecided" ? "unsure"
                                                  : "dim",
                        member(reason, "code"), member(reason, "text"),
                        is_told ? "<br><span class=\"dim\">→ " + advice + "</span>" : "");
  }
  return list + "</ul>";
}

std::string gpu_cells(const Report& cells) {
  std::string text;
  for (const Report& one : cells)
    text += cell(escaped(gpu_text(one)), code_class(text_of(one, "code")));
  return text;
}

std::string archs_line(const Report& report) {
  std::vector<std::string> archs;
  for (const char* key : {"cuda_archs", "hip_archs"}) {
    for (const Report& arch : report.at(key)) archs.push_back(arch.get<std::string>());
  }
  return archs.empty() ? ""
                       : "<div class=\"dim\">built for " + escaped(join(archs, " ")) + "</div>";
}

// Returns what unfolds under a package: its reasons, then each file with its reasons.
std::string inner(const Report& package) {
  std::string text = fmt::format("<div class=\"path dim\">{}</div>{}", member(package, "path"),
                                 reasons_list(package.at("reasons")));
  for (const Report& file : package.at("files")) {
    const std::string verdict = text_of(file, "verdict");
    text += fmt::format("<p><span class=\"path\">{}</span> <span class=\"{}\">{}</span></p>{}{}",
                        member(file, "file"), verdict_class(verdict), escaped(verdict),
                        archs_line(file), reasons_list(file.at("reasons")));
  }
  return text;
}

std::string package_rows(const Report& package, size_t columns) {
  const std::string verdict = text_of(package, "verdict");
  std::string cause;
  if (!package.at("cause").is_null()) {
    cause = fmt::format(": <code class=\"{}\">{}</code> {}", verdict_class(verdict),
                        member(package.at("cause"), "code"), member(package.at("cause"), "text"));
  }
  return fmt::format(
      "<tr><td><b>{}</b></td><td>{}</td><td>{}</td><td class=\"{}\">{}</td>{}</tr>\n"
      "<tr class=\"more\"><td colspan=\"{}\"><details><summary>details{}</summary>{}</details>"
      "</td></tr>\n",
      member(package, "name"), member(package, "version", "-"), package.at("files").size(),
      verdict_class(verdict), escaped(verdict), gpu_cells(package.at("gpus")), columns, cause,
      inner(package));
}

std::string skipped_list(const Report& skipped) {
  if (skipped.empty()) return "";
  std::string text =
      fmt::format("<details><summary>{} not looked at</summary><ul>", skipped.size());
  for (const Report& one : skipped) {
    text += fmt::format("<li><span class=\"path\">{}</span>: {}</li>", member(one, "path"),
                        member(one.at("reason"), "text"));
  }
  return text + "</ul></details>\n";
}

[[noreturn]] void fail(const std::string& path) {
  throw std::runtime_error(fmt::format("{}: {}; name a file in a folder that can be written", path,
                                       std::strerror(errno)));
}

}  // namespace

std::string survey_page(const Report& report) {
  const Report& machine = report.at("machine");
  std::string page = std::string(kHead) + kPageTitle + kStyle;
  page +=
      fmt::format("<h1>Will the native code run?</h1>\n<p>{} {}</p>\n",
                  machine.at("described").get<bool>() ? "Judged for" : "Judged on this machine:",
                  escaped(machine_text(machine)));
  page +=
      "<div class=\"wide\"><table>\n<tr><th>Package</th><th>Version</th><th>Files</th>"
      "<th>Verdict</th>";
  const size_t columns = 4 + machine.at("gpus").size();
  for (const Report& gpu : machine.at("gpus")) page += "<th>" + escaped(gpu_title(gpu)) + "</th>";
  page += "</tr>\n";
  for (const Report& package : report.at("packages")) page += package_rows(package, columns);
  page += "</table></div>\n" + reasons_list(report.at("reasons"));
  page += skipped_list(report.at("skipped"));
  page += fmt::format("<p>{}</p>\n<p class=\"dim\">opdock {}</p>\n</body>\n</html>\n",
                      escaped(counts_text(report)), escaped(opdock_version()));
  return page;
}

void write_page(const std::string& path, const std::string& page) {
  std::string made = path + ".XXXXXX";
  const Fd file(mkostemp(made.data(), O_CLOEXEC));
  if (!file) fail(path);
  size_t written = 0;
  while (written < page.size()) {
    const ssize_t count = write(file.get(), page.data() + written, page.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    written += static_cast<size_t>(count);
  }
  // Gives the page the mode of a newly created file: readable by those whom the umask allows.
  const mode_t mask = umask(0);
  umask(mask);
  if (written < page.size() || fchmod(file.get(), 0666 & ~mask) != 0 || fsync(file.get()) != 0 ||
      std::rename(made.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(made.c_str());
    errno = error;
    fail(path);
  }
}

}  // namespace opdock::cli
