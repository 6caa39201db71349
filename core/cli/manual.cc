// Makes opdock.1, the manual page, from the declared commands.
// SPDX-License-Identifier: Apache-2.0
#include "command_line.h"
#include "fmt/format.h"

namespace opdock::cli {
namespace {

// Escapes a text for roff, so that it has no hyphens for minus signs and no requests where a line
// begins.
std::string roff(const std::string& text) {
  std::string safe;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (text.compare(i, 3, "…") == 0) {
      safe += "...";
      i += 2;
    } else if (c == '\\') {
      safe += "\\e";
    } else if (c == '-') {
      safe += "\\-";
    } else if ((c == '.' || c == '\'') && (safe.empty() || safe.back() == '\n')) {
      safe += std::string("\\&") + c;
    } else {
      safe += c;
    }
  }
  return safe;
}

// Returns "--arg NAME=VALUE", in bold and italics.
std::string spelled(const OptionInfo& option) {
  std::string text;
  for (const std::string& name : option.names) {
    text += (text.empty() ? "" : ", ") + fmt::format("\\fB{}\\fR", roff(name));
  }
  std::string value;
  constexpr size_t kMaxShown = 4;
  for (const std::string& word : option.choices) {
    if (option.choices.size() > kMaxShown) break;
    value += (value.empty() ? "" : "|") + fmt::format("\\fB{}\\fR", roff(word));
  }
  if (value.empty() && !option.value.empty()) {
    value = fmt::format("\\fI{}\\fR", roff(option.value));
  }
  return text + (text.empty() || value.empty() ? "" : " ") + value;
}

// Returns "opdock inspect [OPTIONS] FILE".
std::string synopsis(const CommandInfo& command, const std::string& name) {
  std::string text = fmt::format("\\fB{}\\fR", roff(name));
  bool has_options = false;
  std::string arguments;
  for (const OptionInfo& option : command.options) {
    if (!option.names.empty()) {
      has_options = true;
      continue;
    }
    const std::string one = spelled(option) + (option.many ? "\\~.\\|.\\|." : "");
    arguments += option.required ? " " + one : " [" + one + "]";
  }
  return text + (has_options ? " [\\fIoptions\\fR]" : "") + arguments;
}

// Adds the commands that have no commands of their own, each with the words that precede it.
void add_command(const CommandInfo& command, const std::string& name, std::string* text) {
  for (const CommandInfo& below : command.commands) {
    add_command(below, name + " " + below.name, text);
  }
  if (!command.commands.empty()) return;
  *text += fmt::format(".SS {}\n{}.\n", synopsis(command, name), roff(command.text));
  for (const OptionInfo& option : command.options) {
    if (!option.names.empty() && option.names.back() == "--help") continue;
    *text += fmt::format(".TP\n{}\n{}.\n", spelled(option), roff(option.text));
  }
  if (!command.footer.empty()) *text += fmt::format(".PP\n{}\n", roff(command.footer));
}

constexpr const char* kEnd = R"(.SH EXIT STATUS
.TP
.B 0
Good: done, or what was asked about can be used.
.TP
.B 1
What was asked about cannot be used, was not found, or could not be done.
.TP
.B 2
The command line, a variable or a setting is invalid; a path that was named does not exist.
.TP
.B 130
Stopped by Ctrl\-C.
.PP
With
.B \-\-json
an error is an object on standard output too: its text as
.IR error ,
the exit
.IR status ,
and
.IR reasons ,
each with
.IR code ,
.IR stage ,
.IR severity ,
.IR found ,
.I wanted
and
.IR advice .
.SH ENVIRONMENT
.TP
.B OPDOCK_PLUGIN_PATH
Folders or files, colon\-separated, to use instead of the default places.
.TP
.B OPDOCK_ADD_PLUGIN_PATH
The same, searched before them.
.TP
.BR OPDOCK_BUILD ", " OPDOCK_JIT ", " OPDOCK_FALLBACK
What is done where no plugin fits.
.TP
.BR OPDOCK_CACHE_DIR ", " OPDOCK_CACHE_MAX_BYTES
Where what was compiled and built is kept, and how much of it.
.TP
.B OPDOCK_PYTHON
The Python that runs plugins' tests and benches.
.TP
.B NO_COLOR
No colours on a terminal.
.SH FILES
.TP
.I ~/.local/share/opdock/plugins
The user's own plugins.
.TP
.IR ~/.config/opdock/config.toml ", " /etc/opdock/config.toml
Settings.
.TP
.I ~/.cache/opdock
The cache.
)";

}  // namespace

std::string manual_page(const CommandInfo& root) {
  std::string text = fmt::format(
      ".TH OPDOCK 1 \"\" \"Opdock {}\" \"User Commands\"\n"
      ".SH NAME\nopdock \\- find, check, build, load and call op plugins\n"
      ".SH SYNOPSIS\n\\fBopdock\\fR \\fIcommand\\fR [\\fIoptions\\fR] [\\fIarguments\\fR]\n"
      ".SH DESCRIPTION\n{}\nOptions follow the command; every command knows \\fB\\-\\-help\\fR.\n"
      ".SH COMMANDS\n",
      roff(opdock_version()), roff(root.text));
  for (const CommandInfo& command : root.commands) {
    add_command(command, "opdock " + command.name, &text);
  }
  return text + kEnd;
}

}  // namespace opdock::cli
