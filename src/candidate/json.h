#pragma once

#include <string>
#include <string_view>

#include "lapidary/candidate.h"
#include "support/result.h"

namespace lapidary {

/// A config from the JSON that `text(config)` writes: an object of whole numbers and strings.
Result<Config> config_from_json(std::string_view json);

/// A tune's outcome as one line of JSON, what the store keeps. `from_store` is not written: it says
/// where this value came from.
std::string to_json(const TuneResult& result);

/// The inverse of `to_json`. Unknown keys and missing ones are errors: the store's version decides
/// what is read.
Result<TuneResult> tune_result_from_json(std::string_view json);

}  // namespace lapidary
