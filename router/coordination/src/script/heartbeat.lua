-- ARGV: epoch, number, lease ms, head kept ms, a name for the store, deltas kept ms, stream kept ms, ended kept ms
local known = redis.call('HMGET', META, 'writer', 'epoch', 'seq')
if not known[1] then return {'lost', 'absent'} end
if known[1] ~= WRITER then return {'fenced'} end
if known[2] ~= ARGV[3] or known[3] ~= ARGV[4] then return {'lost', 'behind'} end
local now = clock()
local lease_end = whole(now + ARGV[5])
-- First what a full memory does not forbid; after it the server lets the rest of the script pass. What is published is
-- up to date, so its lease may be renewed.
redis.call('PEXPIRE', META, ARGV[6])
redis.call('HSET', META, 'until', lease_end)
redis.call('ZADD', OWNERS, lease_end, OWNER)
redis.call('ZREMRANGEBYSCORE', OWNERS, '-inf', whole(now - ARGV[10]))
redis.call('SET', STORE, ARGV[7], 'NX')
-- Servers before 6.2 cannot trim by age; the length is bounded anyway.
redis.pcall('XTRIM', DELTAS, 'MINID', '~', whole(now - ARGV[8]))
for _, key in ipairs({STORE, OWNERS, DELTAS}) do redis.call('PEXPIRE', key, ARGV[9]) end
local first = redis.call('XRANGE', DELTAS, '-', '+', 'COUNT', '1')
return {'ok', first[1] and first[1][1] or '', whole(redis.call('XLEN', DELTAS)), whole(now)}
