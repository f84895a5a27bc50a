-- ARGV: the lease that is left ms
if redis.call('HGET', META, 'writer') ~= WRITER then return {'fenced'} end
redis.call('HSET', META, 'until', '0')
local lease_end = redis.call('ZSCORE', OWNERS, OWNER)
if lease_end then
  redis.call('ZADD', OWNERS, whole(math.min(tonumber(lease_end), clock() + ARGV[3])), OWNER)
end
return {'ok'}
