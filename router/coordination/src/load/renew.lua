-- Renews a router's lease (after clock.lua), and names the routers whose lease has not ended.
--
-- KEYS: the routers by when their lease ends.
-- ARGV: the router, its lease (ms), most names in the answer.
local now = clock()
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
-- Names that ended a minute ago are of no use to anybody.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 60000)
redis.call('PEXPIRE', KEYS[1], 120000 + ARGV[2])
return redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf', 'LIMIT', 0, ARGV[3])
