-- KEYS: .., workers, secret. ARGV: worker reason ttl_ms fingerprint... -> whether the other workers' secret is one of
-- these; the first is this worker's
local stored, same = redis.call('GET', KEYS[17]), false
for index = 4, #ARGV do same = same or not stored or stored == ARGV[index] end
if not same then return 0 end
redis.call('SET', KEYS[17], ARGV[4], 'EX', '120')
redis.call('HSET', KEYS[16], ARGV[1], cmsgpack.pack({now + ARGV[3], ARGV[2]}))
return 1
