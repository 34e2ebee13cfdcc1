-- id process -> nil | state called_off result. Whoever asks about a job that is not over is told of its news.
local field = redis.call('HMGET', job_key(ARGV[1]), 'state', 'called_off', 'result')
if not field[1] then return nil end
if not is_over(field[1]) then listen(ARGV[1], ARGV[2]) end
return {field[1], field[2] or '', field[3] or ''}
