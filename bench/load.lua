-- Sends prepared requests one after the other; each is preceded in the file by its length in eight digits.
local requests, at = {}, 0

function init(args)
  local file = assert(io.open(args[1], "rb"))
  while true do
    local length = file:read(8)
    if not length then break end
    requests[#requests + 1] = file:read(tonumber(length))
  end
  file:close()
end

function request()
  at = at % #requests + 1
  return requests[at]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format('\n{"requests":%d,"seconds":%.6f,"failed":%d,"p50":%.1f,"p99":%.1f}\n',
    summary.requests, summary.duration / 1e6,
    errors.connect + errors.read + errors.write + errors.timeout + errors.status,
    latency:percentile(50), latency:percentile(99)))
end
