-- Renews a router's lease (after clock.lua), and names the routers whose use may still count, the latest first.
--
-- KEYS: the routers by when their lease ends.
-- ARGV: the router, its lease (ms), most names in the answer.
local now = clock()
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZREVRANGEBYSCORE', KEYS[1], '+inf', '(' .. now, 'LIMIT', 0, ARGV[3])
