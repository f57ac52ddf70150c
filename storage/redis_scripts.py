"""The Lua scripts of records in Redis, which Redis runs one at a time and whole.

Each takes the time of the given clock as its first argument, or an empty string, and then asks Redis for its own time.
"""

from __future__ import annotations

from typing import Final

_BEGIN: Final = """
local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = tonumber(time[1]) + tonumber(time[2]) / 1000000
end
local function is_live(expires)
    return expires and (expires == '' or tonumber(expires) > now)
end
"""
NOW: Final = _BEGIN + "return string.format('%.17g', now)"
# KEYS: the record. ARGV: time.
LOAD: Final = (
    _BEGIN
    + """
local found = redis.call('HMGET', KEYS[1], 'value', 'version', 'expires')
if is_live(found[3]) then
    return found
end
return false
"""
)
# KEYS: the record, the counter, all keys, keys by expiry. ARGV: time, key, value, expiry, expected version.
SAVE: Final = (
    _BEGIN
    + """
local found = redis.call('HMGET', KEYS[1], 'version', 'expires')
local present = '0'
if is_live(found[2]) then
    present = found[1]
end
if ARGV[5] ~= '' and ARGV[5] ~= present then
    return {0, present}
end
local version = redis.call('INCR', KEYS[2])
redis.call('HSET', KEYS[1], 'value', ARGV[3], 'version', string.format('%.0f', version), 'expires', ARGV[4])
redis.call('ZADD', KEYS[3], 0, ARGV[2])
if ARGV[4] == '' then
    redis.call('PERSIST', KEYS[1])
    redis.call('ZREM', KEYS[4], ARGV[2])
else
    local left = math.min(math.max(tonumber(ARGV[4]) - now, 0), 1e10)
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', left * 1000 + 3600000))
    redis.call('ZADD', KEYS[4], ARGV[4], ARGV[2])
end
return {version, present}
"""
)
# KEYS: the record, all keys, keys by expiry. ARGV: time, key.
DELETE: Final = (
    _BEGIN
    + """
local was_live = is_live(redis.call('HGET', KEYS[1], 'expires'))
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[2])
redis.call('ZREM', KEYS[3], ARGV[2])
return was_live and 1 or 0
"""
)
# KEYS: all keys. ARGV: time, from, to, how many, the beginning of a record's name. Returns the last key, if there may
# be more, and four values of each record.
PAGE: Final = (
    _BEGIN
    + """
local keys = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[2], ARGV[3], 'LIMIT', 0, tonumber(ARGV[4]))
local page = {#keys == tonumber(ARGV[4]) and keys[#keys] or ''}
for _, key in ipairs(keys) do
    local found = redis.call('HMGET', ARGV[5] .. key, 'value', 'version', 'expires')
    if is_live(found[3]) then
        page[#page + 1] = key
        for _, value in ipairs(found) do
            page[#page + 1] = value
        end
    end
end
return page
"""
)
# KEYS: all keys, keys by expiry. ARGV: as above. Returns the last key, if there may be more, and how many were live.
DELETE_PAGE: Final = (
    _BEGIN
    + """
local keys = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[2], ARGV[3], 'LIMIT', 0, tonumber(ARGV[4]))
local live = 0
for _, key in ipairs(keys) do
    if is_live(redis.call('HGET', ARGV[5] .. key, 'expires')) then
        live = live + 1
    end
    redis.call('DEL', ARGV[5] .. key)
    redis.call('ZREM', KEYS[1], key)
    redis.call('ZREM', KEYS[2], key)
end
return {#keys == tonumber(ARGV[4]) and keys[#keys] or '', live}
"""
)
# KEYS: all keys, keys by expiry. ARGV: time, how many, the beginning of a record's name.
PURGE: Final = """
local keys = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1], 'LIMIT', 0, tonumber(ARGV[2]))
for _, key in ipairs(keys) do
    redis.call('DEL', ARGV[3] .. key)
    redis.call('ZREM', KEYS[1], key)
    redis.call('ZREM', KEYS[2], key)
end
return #keys
"""
