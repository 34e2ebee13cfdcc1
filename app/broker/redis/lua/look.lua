-- id process -> nil | state called_off result. Subscribes the process to an open job.
local field = redis.call('HMGET', job_key(ARGV[1]), 'state', 'called_off', 'result')
if not field[1] then return nil end
if not is_over(field[1]) then subscribe(ARGV[1], ARGV[2]) end
return {field[1], field[2] or '', field[3] or ''}
