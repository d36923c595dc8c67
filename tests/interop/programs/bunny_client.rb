# Bunny as its guides have it. Arguments: `once` or `loop`, a queue name, then the addresses of the nodes.
#   once: publishes, consumes, is refused and ends.
#   loop: doubles what comes into NAME-in into NAME-out, for good; Bunny connects again by itself.
require "bunny"

mode, name, *addresses = ARGV
hosts = addresses.map { |address| address[%r{@([^/]+)}, 1] }

def check(value, what)
  raise "not so: #{what}" unless value
end

if mode == "once"
  one, two = addresses.first(2).map { |address| Bunny.new(address).start }
  channel = one.create_channel
  channel.confirm_select
  exchange = channel.topic(name, durable: true)
  queue = channel.queue(name, durable: true, arguments: { "x-message-ttl" => 600_000 }).bind(exchange, routing_key: "a.*")
  returned = Queue.new
  exchange.on_return { |_info, _properties, body| returned << body }
  30.times { |number| exchange.publish(number.to_s, routing_key: "a.#{number}", persistent: true, headers: { "n" => number }) }
  exchange.publish("nowhere", routing_key: "b", mandatory: true)
  check channel.wait_for_confirms, "confirmed"
  check returned.pop == "nowhere", "returned"

  got = Queue.new
  worker = two.create_channel
  worker.prefetch(5)
  worker.queue(name, passive: true).subscribe(manual_ack: true) do |info, properties, body|
    if body == "7" && !info.redelivered?
      worker.nack(info.delivery_tag, false, true)
    else
      check properties.headers["n"] == body.to_i, "headers"
      got << body.to_i
      worker.ack(info.delivery_tag)
    end
  end
  bodies = Array.new(30) { got.pop }
  check bodies.sort == (0...30).to_a, "all once: #{bodies}"
  worker.close
  begin
    one.create_channel.queue(name, durable: true, arguments: { "x-message-ttl" => 1 })
    check false, "refused"
  rescue Bunny::PreconditionFailed
    check true, "refused"
  end
  check queue.delete, "deleted"
  one.close
  two.close
  puts "all well"
else
  connection = Bunny.new(hosts: hosts, hosts_shuffle_strategy: ->(all) { all }, user: "guest", pass: "guest",
                         network_recovery_interval: 0.3, heartbeat: 2).start
  channel = connection.create_channel
  channel.prefetch(5)
  answers = channel.queue("#{name}-out", durable: true)
  channel.queue("#{name}-in", durable: true).subscribe(manual_ack: true) do |info, _properties, body|
    channel.default_exchange.publish((2 * body.to_i).to_s, routing_key: answers.name, persistent: true)
    channel.ack(info.delivery_tag)
  rescue Bunny::Exception => e
    puts "lost: #{e.class}"
  end
  $stdout.puts "ready"
  $stdout.flush
  sleep
end
