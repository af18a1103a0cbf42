package weir.hadoop;

import java.nio.ByteBuffer;
import java.util.concurrent.ArrayBlockingQueue;

/** Direct buffers that streams share. */
final class DirectBuffers {
  /** Bytes of each. */
  static final int BYTES = 1 << 20;
  private static final ArrayBlockingQueue<ByteBuffer> FREE = new ArrayBlockingQueue<>(64);

  private DirectBuffers() {
  }

  /** An empty one. */
  static ByteBuffer take() {
    ByteBuffer buffer = FREE.poll();
    if (buffer == null) {
      return ByteBuffer.allocateDirect(BYTES);
    }
    buffer.clear();
    return buffer;
  }

  /** Gives one back; nobody may use it after that. */
  static void give(ByteBuffer buffer) {
    // Beyond the limit the garbage collector has it.
    FREE.offer(buffer);
  }
}
