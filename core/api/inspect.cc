// The functions of opdock.h that look at native code, whosever it is.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>

#include "chain/hooks.h"
#include "chain/report.h"
#include "chain/runtime.h"
#include "inspect/survey_json.h"

opdock_status opdock_survey_json(opdock_runtime* runtime, const char* request, char** out,
                                 char* error, uint32_t error_size) {
  return opdock::report(
      [&] {
        opdock::need(runtime, "runtime");
        opdock::need(request, "request", "a JSON object");
        const opdock::SurveyRequest wanted = opdock::read_request(request);
        // A line on a terminal only: elsewhere the survey is over before anybody reads it.
        std::atomic<bool> is_announced{true};
        opdock::HookedProgress progress(runtime->hooks(), &is_announced);
        const opdock::Waiting waiting(runtime->hooks());
        return opdock::to_json(opdock::survey(wanted, *runtime->machine(), &progress));
      },
      out, {error, error_size});
}
