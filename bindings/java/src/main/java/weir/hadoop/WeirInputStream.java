package weir.hadoop;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.hadoop.fs.ByteBufferPositionedReadable;
import org.apache.hadoop.fs.ByteBufferReadable;
import org.apache.hadoop.fs.CanUnbuffer;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.StreamCapabilities;

/**
 * An open file that is read. Reads one after another go through a direct buffer, which fills in
 * growing steps; reads at a position may come from any thread.
 */
class WeirInputStream extends FSInputStream
    implements ByteBufferReadable, ByteBufferPositionedReadable, CanUnbuffer, StreamCapabilities {
  /** Bytes that a read after a seek fetches at the least. */
  private static final int FIRST_BYTES = 64 << 10;

  private static final boolean VECTORED = hasRanges();

  private final long file;
  private final FileSystem.Statistics statistics;
  private volatile boolean closed;
  /** Where the next byte comes from. */
  private long position;
  /** What was fetched from there on; {@code null}: nothing. */
  private ByteBuffer fetched;
  private int step = FIRST_BYTES;

  WeirInputStream(long file, FileSystem.Statistics statistics) {
    this.file = file;
    this.statistics = statistics;
  }

  void checkOpen() throws IOException {
    if (closed) {
      throw new IOException(FSExceptionMessages.STREAM_IS_CLOSED);
    }
  }

  /** Fetches if nothing is there; false: the file ends here. */
  private boolean fill(int wanted) throws IOException {
    checkOpen();
    if (fetched != null && fetched.hasRemaining()) {
      return true;
    }
    if (fetched == null) {
      fetched = DirectBuffers.take();
    }
    fetched.clear();
    int len = Math.min(Math.max(wanted, step), DirectBuffers.BYTES);
    fetched.limit(0);
    int got = Native.read(file, position, fetched, 0, len);
    fetched.limit(got);
    step = Math.min(step * 2, DirectBuffers.BYTES);
    return got > 0;
  }

  private int took(int bytes) {
    position += bytes;
    statistics.incrementBytesRead(bytes);
    return bytes;
  }

  @Override
  public synchronized int read() throws IOException {
    if (!fill(1)) {
      return -1;
    }
    int value = fetched.get() & 0xff;
    took(1);
    return value;
  }

  @Override
  public synchronized int read(byte[] into, int offset, int length) throws IOException {
    checkOpen();
    validatePositionedReadArgs(position, into, offset, length);
    if (length == 0) {
      return 0;
    }
    if (!fill(length)) {
      return -1;
    }
    int bytes = Math.min(length, fetched.remaining());
    fetched.get(into, offset, bytes);
    return took(bytes);
  }

  @Override
  public synchronized int read(ByteBuffer into) throws IOException {
    checkOpen();
    if (!into.hasRemaining()) {
      return 0;
    }
    boolean isEmpty = fetched == null || !fetched.hasRemaining();
    if (isEmpty && into.isDirect() && into.remaining() >= FIRST_BYTES) {
      int got = readDirect(position, into);
      return got == 0 ? -1 : took(got);
    }
    if (!fill(into.remaining())) {
      return -1;
    }
    int bytes = Math.min(into.remaining(), fetched.remaining());
    ByteBuffer part = fetched.duplicate();
    part.limit(part.position() + bytes);
    into.put(part);
    fetched.position(fetched.position() + bytes);
    return took(bytes);
  }

  private int readDirect(long at, ByteBuffer into) throws IOException {
    if (into.isReadOnly()) {
      throw new IllegalArgumentException("the buffer is read-only");
    }
    int got = Native.read(file, at, into, into.position(), into.remaining());
    into.position(into.position() + got);
    return got;
  }

  /** Reads at a place until the buffer is full or the file ends; the stream stays where it is. */
  private int readAt(long at, ByteBuffer into) throws IOException {
    if (into.isDirect()) {
      return readDirect(at, into);
    }
    ByteBuffer between = DirectBuffers.take();
    int all = 0;
    try {
      while (into.hasRemaining()) {
        int len = Math.min(into.remaining(), DirectBuffers.BYTES);
        between.clear();
        int got = Native.read(file, at + all, between, 0, len);
        between.limit(got);
        into.put(between);
        all += got;
        if (got < len) {
          break;
        }
      }
      return all;
    } finally {
      DirectBuffers.give(between);
    }
  }

  long size() throws IOException {
    return Native.size(file);
  }

  /** Reads ranges, as offsets and lengths in turn, one after another into a direct buffer. */
  void readRanges(long[] places, ByteBuffer into) throws IOException {
    int bytes = Native.readRanges(file, places, into);
    statistics.incrementBytesRead(bytes);
  }

  /** A stream for this version of Hadoop. */
  static WeirInputStream of(long file, FileSystem.Statistics statistics) {
    return VECTORED ? Vectored.of(file, statistics) : new WeirInputStream(file, statistics);
  }

  private static boolean hasRanges() {
    try {
      Class.forName("org.apache.hadoop.fs.FileRange", false, FileSystem.class.getClassLoader());
      return true;
    } catch (ClassNotFoundException e) {
      return false;
    }
  }

  /** Loaded, and {@link VectoredInputStream} with it, only where Hadoop has ranges. */
  private static final class Vectored {
    static WeirInputStream of(long file, FileSystem.Statistics statistics) {
      return new VectoredInputStream(file, statistics);
    }
  }

  private static void checkPosition(long at) throws IOException {
    if (at < 0) {
      throw new EOFException(FSExceptionMessages.NEGATIVE_SEEK + ": " + at);
    }
  }

  @Override
  public int read(long at, byte[] into, int offset, int length) throws IOException {
    checkOpen();
    validatePositionedReadArgs(at, into, offset, length);
    return length == 0 ? 0 : read(at, ByteBuffer.wrap(into, offset, length));
  }

  @Override
  public int read(long at, ByteBuffer into) throws IOException {
    checkOpen();
    checkPosition(at);
    if (!into.hasRemaining()) {
      return 0;
    }
    int got = readAt(at, into);
    statistics.incrementBytesRead(got);
    return got == 0 ? -1 : got;
  }

  @Override
  public void readFully(long at, ByteBuffer into) throws IOException {
    checkOpen();
    checkPosition(at);
    int wanted = into.remaining();
    int got = readAt(at, into);
    statistics.incrementBytesRead(got);
    if (got < wanted) {
      throw new EOFException(FSExceptionMessages.EOF_IN_READ_FULLY);
    }
  }

  @Override
  public synchronized void seek(long to) throws IOException {
    checkOpen();
    checkPosition(to);
    if (to == position) {
      return;
    }
    long ahead = to - position;
    if (ahead > 0 && fetched != null && ahead <= fetched.remaining()) {
      fetched.position(fetched.position() + (int) ahead);
    } else {
      if (to > Native.size(file)) {
        throw new EOFException(FSExceptionMessages.CANNOT_SEEK_PAST_EOF + ": " + to);
      }
      if (fetched != null) {
        fetched.limit(0);
      }
      step = FIRST_BYTES;
    }
    position = to;
  }

  @Override
  public synchronized long skip(long bytes) throws IOException {
    checkOpen();
    if (bytes <= 0) {
      return 0;
    }
    long skipped = Math.min(bytes, Math.max(0, Native.size(file) - position));
    seek(position + skipped);
    return skipped;
  }

  @Override
  public synchronized int available() throws IOException {
    checkOpen();
    return (int) Math.min(Integer.MAX_VALUE, Math.max(0, Native.size(file) - position));
  }

  @Override
  public synchronized long getPos() {
    return position;
  }

  @Override
  public boolean seekToNewSource(long target) {
    return false;
  }

  @Override
  public synchronized void unbuffer() {
    if (fetched != null) {
      DirectBuffers.give(fetched);
      fetched = null;
    }
  }

  @Override
  public synchronized void close() throws IOException {
    if (closed) {
      return;
    }
    closed = true;
    unbuffer();
    Native.close(file);
  }

  @Override
  public boolean hasCapability(String capability) {
    switch (capability.toLowerCase(java.util.Locale.ROOT)) {
      case StreamCapabilities.UNBUFFER:
      case StreamCapabilities.READBYTEBUFFER:
      case StreamCapabilities.PREADBYTEBUFFER:
        return true;
      default:
        return false;
    }
  }
}
