/* librabbitmq as its examples have it. Arguments: host, port, a queue name. Prints "all well" or what is not so. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <amqp.h>
#include <amqp_tcp_socket.h>

enum { CHANNEL = 1, MESSAGES = 30 };

static void check(int so, const char *what) {
  if (!so) {
    fprintf(stderr, "not so: %s\n", what);
    exit(1);
  }
}

static void check_answer(amqp_connection_state_t connection, const char *what) {
  amqp_rpc_reply_t reply = amqp_get_rpc_reply(connection);
  check(reply.reply_type == AMQP_RESPONSE_NORMAL, what);
}

int main(int count, char **words) {
  check(count == 4, "arguments: host, port, queue");
  amqp_connection_state_t connection = amqp_new_connection();
  amqp_socket_t *socket = amqp_tcp_socket_new(connection);
  check(socket && !amqp_socket_open(socket, words[1], atoi(words[2])), "connected");
  amqp_rpc_reply_t login =
      amqp_login(connection, "/", AMQP_DEFAULT_MAX_CHANNELS, 131072, 10, AMQP_SASL_METHOD_PLAIN, "guest", "guest");
  check(login.reply_type == AMQP_RESPONSE_NORMAL, "logged in");
  amqp_channel_open(connection, CHANNEL);
  check_answer(connection, "channel");
  amqp_bytes_t queue = amqp_cstring_bytes(words[3]);
  amqp_queue_declare(connection, CHANNEL, queue, 0, 1, 0, 0, amqp_empty_table);
  check_answer(connection, "declared");
  amqp_queue_bind(connection, CHANNEL, queue, amqp_cstring_bytes("amq.direct"), queue, amqp_empty_table);
  check_answer(connection, "bound");
  amqp_confirm_select(connection, CHANNEL);
  check_answer(connection, "confirms");

  for (int number = 0; number < MESSAGES; number++) {
    char body[12];
    snprintf(body, sizeof body, "%d", number);
    amqp_basic_properties_t properties;
    properties._flags = AMQP_BASIC_DELIVERY_MODE_FLAG;
    properties.delivery_mode = AMQP_DELIVERY_PERSISTENT;
    check(!amqp_basic_publish(connection, CHANNEL, amqp_cstring_bytes("amq.direct"), queue, 1, 0, &properties,
                              amqp_cstring_bytes(body)),
          "published");
  }
  for (uint64_t confirmed = 0; confirmed < MESSAGES;) {
    amqp_frame_t frame;
    check(amqp_simple_wait_frame(connection, &frame) == AMQP_STATUS_OK, "a frame");
    check(frame.frame_type == AMQP_FRAME_METHOD && frame.payload.method.id == AMQP_BASIC_ACK_METHOD, "an ack");
    confirmed = ((amqp_basic_ack_t *)frame.payload.method.decoded)->delivery_tag;
  }

  amqp_basic_qos(connection, CHANNEL, 0, 5, 0);
  check_answer(connection, "prefetch");
  amqp_basic_consume(connection, CHANNEL, queue, amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
  check_answer(connection, "consuming");
  for (int number = 0; number < MESSAGES; number++) {
    amqp_envelope_t envelope;
    char body[12];
    amqp_maybe_release_buffers(connection);
    check(amqp_consume_message(connection, &envelope, NULL, 0).reply_type == AMQP_RESPONSE_NORMAL, "a message");
    snprintf(body, sizeof body, "%d", number);
    check(envelope.message.body.len == strlen(body) && !memcmp(envelope.message.body.bytes, body, strlen(body)),
          "in order");
    check(!amqp_basic_ack(connection, CHANNEL, envelope.delivery_tag, 0), "acknowledged");
    amqp_destroy_envelope(&envelope);
  }
  amqp_queue_delete(connection, CHANNEL, queue, 0, 0);
  check_answer(connection, "deleted");
  check(amqp_channel_close(connection, CHANNEL, AMQP_REPLY_SUCCESS).reply_type == AMQP_RESPONSE_NORMAL, "channel closed");
  check(amqp_connection_close(connection, AMQP_REPLY_SUCCESS).reply_type == AMQP_RESPONSE_NORMAL, "closed");
  check(!amqp_destroy_connection(connection), "freed");
  puts("all well");
  return 0;
}
