"""Lua scripts that the server runs as one atomic step.

A session is one hash: the size of all its logs, and for each log its state (`l` and its name) and the data it was
opened with (`a` and its name). The entries of a log are a stream, numbered `0-<seq>`. All keys of a session have its
digest as their hash tag. The time is the server's own, so that machines need not agree on it, unless one is passed in.
The last argument of each script says whether it may have run before.
"""

from __future__ import annotations

from typing import Final

from pegboard.stores.redis.command_pipeline import Script

_TIME: Final = Script("""
local function milliseconds(given)
  if given ~= '' then return tonumber(given) end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
""")

# ARGV: 1 time, 2 name of the sender, 3 prefix of channels, 4 how long ended logs are kept, 5 how long a session, 6 …
_BOOK: Final = _TIME.followed_by("""
local book, now, sender, channels = KEYS[1], milliseconds(ARGV[1]), ARGV[2], ARGV[3]
local ended_for, life = tonumber(ARGV[4]), tonumber(ARGV[5])
local removed = {}

local function stream(name) return book .. ':' .. name end
local function is_over(log) return log.ended >= 0 and log.ended < now - ended_for end
local function save(name, log) redis.call('HSET', book, 'l' .. name, cmsgpack.pack(log)) end
local function total() return tonumber(redis.call('HGET', book, '#size') or 0) end

local function find(name)
  local packed = redis.call('HGET', book, 'l' .. name)
  local log = packed and cmsgpack.unpack(packed)
  return log and not is_over(log) and log or nil
end

local function remove(name, log)
  redis.call('HINCRBY', book, '#size', -log.size)
  redis.call('HDEL', book, 'l' .. name, 'a' .. name)
  redis.call('DEL', stream(name))
  redis.call('PUBLISH', channels .. name, sender)
  removed[#removed + 1] = name
end

local function all()
  local found, fields = {}, redis.call('HGETALL', book)
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, 1) == 'l' then
      local name, log = string.sub(fields[i], 2), cmsgpack.unpack(fields[i + 1])
      if is_over(log) then remove(name, log) else found[#found + 1] = {name = name, log = log} end
    end
  end
  table.sort(found, function(one, two) return one.log.order < two.log.order end)
  return found
end

local function ended(logs)
  local found = {}
  for _, one in ipairs(logs) do
    if one.log.ended >= 0 then found[#found + 1] = one end
  end
  table.sort(found, function(one, two)
    if one.log.ended ~= two.log.ended then return one.log.ended < two.log.ended end
    return one.log.order < two.log.order
  end)
  return found
end

local function cut(name, log, entries, bytes)
  local kept, from = {}, '-'
  for _, seq in ipairs(log.kept) do kept[seq] = true end
  while entries > 0 or bytes > 0 do
    local some = redis.call('XRANGE', stream(name), from, '+', 'COUNT', #log.kept + 1)
    if #some == 0 then break end
    for _, entry in ipairs(some) do
      local seq, size = tonumber(string.sub(entry[1], 3)), #entry[2][2]
      from = '(' .. entry[1]
      if (entries > 0 or bytes > 0) and not kept[seq] and not (log.ended >= 0 and seq == log.last) then
        redis.call('XDEL', stream(name), entry[1])
        redis.call('HINCRBY', book, '#size', -size)
        log.size, entries, bytes = log.size - size, entries - 1, bytes - size
      end
    end
  end
  save(name, log)
end
""")

OPEN: Final = _BOOK.followed_by("""
local name, about, most = ARGV[6], ARGV[7], tonumber(ARGV[8])
local packed = redis.call('HGET', book, 'l' .. name)
if packed and ARGV[9] ~= '' then
  local log = cmsgpack.unpack(packed)
  if log.last == 0 and log.by == sender then return {1} end
end
local logs = all()
for _, one in ipairs(logs) do
  if one.name == name then return {0, removed} end
end
if #logs >= most then
  local over = ended(logs)
  if #over == 0 then return {0, removed} end
  remove(over[1].name, over[1].log)
end
local order = redis.call('HINCRBY', book, '#order', 1)
redis.call('HSET', book, 'a' .. name, about)
save(name, {order = order, last = 0, size = 0, ended = -1, by = sender, kept = {}})
redis.call('PEXPIRE', book, life)
return {1, removed}
""")

APPEND: Final = _BOOK.followed_by("""
local name, seq, data, mark = ARGV[6], tonumber(ARGV[7]), ARGV[8], ARGV[9]
local most_entries, most_bytes, most_ended, most_in_all =
  tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])
local log = find(name)
if not log then return {0} end
if ARGV[14] ~= '' and log.last == seq and log.by == sender then return {1} end
if log.ended >= 0 or log.last ~= seq - 1 then return {0} end

redis.call('XADD', stream(name), '0-' .. ARGV[7], 'd', data)
log.last, log.by, log.size = seq, sender, log.size + #data
local size = redis.call('HINCRBY', book, '#size', #data)
if mark == 'keep' then log.kept[#log.kept + 1] = seq end
if mark == 'end' then log.kept, log.ended = {}, now end
local entries = redis.call('XLEN', stream(name))
if entries > most_entries or log.size > most_bytes then
  cut(name, log, entries - most_entries, log.size - most_bytes)
else
  save(name, log)
end
redis.call('PEXPIRE', book, life)
redis.call('PEXPIRE', stream(name), mark == 'end' and ended_for + 60000 or life)
if mark == 'end' then
  local over = ended(all())
  for i = 1, #over - most_ended do remove(over[i].name, over[i].log) end
end
if size > most_in_all then
  local logs = all()
  for _, one in ipairs(logs) do
    local over = total() - most_in_all
    if over <= 0 then break end
    cut(one.name, one.log, 0, over)
  end
  local over = ended(logs)
  -- Keep the newest ended log: its client is about to read it.
  for i = 1, #over - 1 do
    if total() > most_in_all then remove(over[i].name, over[i].log) end
  end
end
redis.call('PUBLISH', channels .. name, sender)
return {1, removed}
""")

RELEASE: Final = _BOOK.followed_by("""
local name, seq = ARGV[6], tonumber(ARGV[7])
local log = find(name)
if not log then return 0 end
local kept = {}
for _, one in ipairs(log.kept) do
  if one ~= seq then kept[#kept + 1] = one end
end
log.kept = kept
save(name, log)
return 1
""")

READ: Final = _BOOK.followed_by("""
local name, after, count = ARGV[6], ARGV[7], ARGV[8]
local log = find(name)
if not log then return false end
local entries = redis.call('XRANGE', stream(name), '(0-' .. after, '+', 'COUNT', count)
return {log.last, log.ended >= 0 and 1 or 0, redis.call('HGET', book, 'a' .. name) or '', entries}
""")

DROP: Final = _BOOK.followed_by("""
for _, one in ipairs(all()) do remove(one.name, one.log) end
redis.call('DEL', book)
return removed
""")

TOUCH: Final = _BOOK.followed_by("""
redis.call('PEXPIRE', book, life)
for _, one in ipairs(all()) do
  if one.log.ended < 0 then redis.call('PEXPIRE', stream(one.name), life) end
end
return removed
""")

# A record is a hash of its value, its version, and the time at which it expires. ARGV: 1 time, 2 …
_RECORD: Final = _TIME.followed_by("""
local now = milliseconds(ARGV[1])
local found = redis.call('HMGET', KEYS[1], 'value', 'version', 'until', 'by')
if found[3] and tonumber(found[3]) <= now then found = {false, false, false, false} end
local version = tonumber(found[2] or 0)
local function write(value, ttl)
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'value', value, 'version', version + 1)
  if ttl ~= '' then
    redis.call('HSET', KEYS[1], 'until', string.format('%.0f', now + tonumber(ttl)))
    redis.call('PEXPIRE', KEYS[1], ttl)
  end
end
""")

GET: Final = _RECORD.followed_by("""
return found[1] and {found[1], version}
""")

# `by` identifies this write: one that is sent again must not count twice.
PUT: Final = _RECORD.followed_by("""
local value, ttl, if_version, by = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if ARGV[6] ~= '' and found[4] == by then return version end
if if_version ~= '' and tonumber(if_version) ~= version then return 0 end
write(value, ttl)
redis.call('HSET', KEYS[1], 'by', by)
return version + 1
""")

ADD: Final = _RECORD.followed_by("""
local amount, ttl, by = ARGV[2], ARGV[3], ARGV[4]
if ARGV[5] ~= '' and found[4] == by then return found[1] end
if found[1] then
  redis.call('HINCRBY', KEYS[1], 'value', amount)
  redis.call('HINCRBY', KEYS[1], 'version', 1)
else
  write(amount, ttl)
end
redis.call('HSET', KEYS[1], 'by', by)
return redis.call('HGET', KEYS[1], 'value')
""")

DELETE: Final = _RECORD.followed_by("""
redis.call('DEL', KEYS[1])
return found[1] and 1 or 0
""")

# KEYS: 1 the entries of a feed, 2 its last number, 3 the leases. ARGV: 1 time, 2 … `by` identifies this entry: one that
# is sent again must not be added twice.
PUBLISH: Final = _TIME.followed_by("""
local now, data, keep, life, channel, sender, by, holder =
  milliseconds(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
if ARGV[9] ~= '' then
  for _, one in ipairs(redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 100)) do
    if one[2][4] == by then return tonumber(string.sub(one[1], 3)) end
  end
end
if holder ~= '' and tonumber(redis.call('ZSCORE', KEYS[3], holder) or 0) <= now then return 0 end
local last = tonumber(redis.call('GET', KEYS[2]) or 0)
if last == 0 then
  -- Milliseconds grow faster than a feed: its numbers are above those of an earlier feed of this name.
  last = now
  redis.call('DEL', KEYS[1])
end
local number = string.format('%.0f', last + 1)
redis.call('XADD', KEYS[1], 'MAXLEN', '=', keep, '0-' .. number, 'd', data, 'by', by)
redis.call('PEXPIRE', KEYS[1], life)
redis.call('SET', KEYS[2], number, 'PX', life)
redis.call('PUBLISH', channel, sender)
return last + 1
""")

# KEYS as above, without the leases. ARGV: 1 time, which is not used, 2 …
READ_FEED: Final = Script("""
local last = tonumber(redis.call('GET', KEYS[2]) or 0)
local after = tonumber(ARGV[2])
local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)
local forgotten = last
if #first > 0 then forgotten = tonumber(string.sub(first[1][1], 3)) - 1 end
local lost = after < forgotten or after > last
if lost then after = forgotten end
local entries = redis.call('XRANGE', KEYS[1], '(0-' .. string.format('%.0f', after), '+', 'COUNT', ARGV[3])
return {last, lost and 1 or 0, entries}
""")

# KEYS: 1 the leases, each with the time until which it is held. ARGV: 1 time, 2 …
RENEW: Final = _TIME.followed_by("""
local now, holder, life = milliseconds(ARGV[1]), ARGV[2], tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + life, holder)
if redis.call('PTTL', KEYS[1]) < 100 * life then redis.call('PEXPIRE', KEYS[1], 100 * life) end
return 1
""")

HOLDERS: Final = _TIME.followed_by("""
return redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', milliseconds(ARGV[1])), '+inf')
""")
