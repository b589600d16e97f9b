{{/* The options of the daemon whose values have a unit. Made by tools/make_docs.py. */}}
{{- define "sluice.units" -}}
duration:
  - engine.ladder.warm_up
  - engine.ladder.review.interval
  - engine.ladder.review.half_life
  - engine.batch.max_queue_delay
  - engine.batch.priority_step
  - engine.queue.max_wait
  - engine.watchdog.hang
  - server.grpc.transfer_timeout
  - server.grpc.stream_stall_timeout
  - server.grpc.stream_idle_timeout
  - server.grpc.connection.handshake_timeout
  - server.grpc.connection.idle_timeout
  - server.grpc.connection.max_age
  - server.grpc.connection.age_grace
  - server.grpc.connection.keepalive_time
  - server.grpc.connection.keepalive_timeout
  - server.grpc.connection.min_ping_interval
  - server.lifecycle.drain_delay
  - server.lifecycle.drain_timeout
size:
  - engine.ladder.memory_limit_bytes
  - engine.kv.memory_bytes
  - engine.queue.max_bytes
  - engine.history.journal_bytes
  - server.memory.limit_bytes
  - server.grpc.max_message_bytes
  - server.grpc.memory_quota_bytes
  - server.grpc.max_unread_bytes
  - server.grpc.max_metadata_bytes
{{- end -}}
