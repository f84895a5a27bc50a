-- ARGV: lease ms, head kept ms, epoch, epoch as bytes, reason, longest stream, then fields and values of the head
local writer = redis.call('HGET', META, 'writer')
if not writer then return {'lost', 'absent'} end
if writer ~= WRITER then return {'fenced'} end
local lease_end = whole(clock() + ARGV[3])
local id = redis.call('XADD', DELTAS, 'MAXLEN', '~', ARGV[8], '*', 'o', OWNER, 'e', ARGV[6], 'k', ARGV[7])
redis.call('HSET', META, 'epoch', ARGV[5], 'seq', '0', 'folds', '0', 'floor', '0', 'floor_id', id, 'last_id', id,
  'until', lease_end, unpack(ARGV, 9))
redis.call('PEXPIRE', META, ARGV[4])
redis.call('ZADD', OWNERS, lease_end, OWNER)
return {'ok', id}
