-- ARGV: epoch, number, folds confirmed, folds asked for, lease ms, head kept ms, a name for the store, deltas kept ms,
-- the newest millisecond to trim, stream kept ms, ended kept ms, the latest time to believe
local known = redis.call('HMGET', META, 'writer', 'epoch', 'seq', 'folds')
if not known[1] then return {'lost', 'absent'} end
if known[1] ~= WRITER then return {'fenced'} end
if known[2] ~= ARGV[3] or known[3] ~= ARGV[4] then return {'lost', 'behind'} end
local folds = tonumber(known[4] or '0') or 0
if folds < tonumber(ARGV[5]) or folds > tonumber(ARGV[6]) then return {'lost', 'behind'} end
local now = clock()
local lease_end = whole(now + ARGV[7])
-- First what a full memory does not forbid; after it the server lets the rest of the script pass. What is published is
-- up to date, so its lease may be renewed.
redis.call('PEXPIRE', META, ARGV[8])
redis.call('HSET', META, 'until', lease_end)
redis.call('ZADD', OWNERS, lease_end, OWNER)
-- A clock that was set forward must not end everybody else's lease by ten minutes at once.
redis.call('ZREMRANGEBYSCORE', OWNERS, '-inf', whole(math.min(now, tonumber(ARGV[14])) - ARGV[13]))
redis.call('SET', STORE, ARGV[9], 'NX')
local last = redis.call('XREVRANGE', DELTAS, '+', '-', 'COUNT', '1')
last = last[1] and last[1][1] or ''
local newest = tonumber(string.match(last, '^%d+') or '0')
local oldest = math.min(newest - ARGV[10], tonumber(ARGV[11]))
-- Servers before 6.2 cannot trim by age; the length is bounded anyway.
if oldest > 0 then redis.pcall('XTRIM', DELTAS, 'MINID', '~', whole(oldest)) end
for _, key in ipairs({STORE, OWNERS, DELTAS}) do redis.call('PEXPIRE', key, ARGV[12]) end
local first = redis.call('XRANGE', DELTAS, '-', '+', 'COUNT', '1')
return {'ok', first[1] and first[1][1] or '', whole(redis.call('XLEN', DELTAS)), whole(now), last}
