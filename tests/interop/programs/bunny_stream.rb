# A stream with Bunny: confirms, the offset header, credit by acknowledgements, coming back at an offset.
# Arguments: a name, the addresses of two nodes.
require "bunny"

COUNT = 40
name, *addresses = ARGV
one, two = addresses.first(2).map { |address| Bunny.new(address).start }

def check(value, what)
  raise "not so: #{what}" unless value
end

def read(connection, name, from, count)
  channel = connection.create_channel
  channel.prefetch(10)
  got = Queue.new
  queue = channel.queue(name, passive: true)
  queue.subscribe(manual_ack: true, arguments: { "x-stream-offset" => from }) do |info, properties, body|
    got << [properties.headers["x-stream-offset"], body]
    channel.ack(info.delivery_tag)
  end
  found = Array.new(count) { got.pop }
  channel.close
  found
end

channel = one.create_channel
channel.confirm_select
queue = channel.queue(name, durable: true, arguments: { "x-queue-type" => "stream" })
COUNT.times { |number| channel.default_exchange.publish(number.to_s, routing_key: name) }
check channel.wait_for_confirms, "confirmed"
all = Array.new(COUNT) { |number| [number, number.to_s] }
check read(two, name, "first", COUNT) == all, "all in order"
check read(one, name, 25, COUNT - 25) == all.drop(25), "from an offset"
check read(two, name, "last", 1) == all.last(1), "the last"
check channel.queue(name, passive: true).message_count == COUNT, "a count"
two.create_channel.queue_delete(name)
two.close
one.close
puts "all well"
