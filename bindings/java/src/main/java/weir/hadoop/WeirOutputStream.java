package weir.hadoop;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.Locale;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.Syncable;

/**
 * An open file that is written, through a direct buffer. After a write has failed the stream tells
 * that failure at every call: what is in the file after it is not known.
 */
final class WeirOutputStream extends OutputStream implements Syncable, StreamCapabilities {
  private final long file;
  private final FileSystem.Statistics statistics;
  /** Where the buffer's first byte goes. */
  private long position;
  private ByteBuffer gathered = DirectBuffers.take();
  private IOException failure;

  WeirOutputStream(long file, long position, FileSystem.Statistics statistics) {
    this.file = file;
    this.position = position;
    this.statistics = statistics;
  }

  private void checkOpen() throws IOException {
    if (gathered == null) {
      throw new IOException(FSExceptionMessages.STREAM_IS_CLOSED);
    }
    if (failure != null) {
      throw new IOException(failure.getMessage(), failure);
    }
  }

  private interface Call {
    void run() throws IOException;
  }

  private void orFail(Call call) throws IOException {
    try {
      call.run();
    } catch (IOException e) {
      failure = e;
      throw e;
    }
  }

  /** Gives the client what is gathered. */
  private void drain() throws IOException {
    int bytes = gathered.position();
    if (bytes > 0) {
      orFail(() -> Native.write(file, position, gathered, 0, bytes));
      position += bytes;
      gathered.clear();
    }
  }

  @Override
  public synchronized void write(int value) throws IOException {
    checkOpen();
    gathered.put((byte) value);
    statistics.incrementBytesWritten(1);
    if (!gathered.hasRemaining()) {
      drain();
    }
  }

  @Override
  public synchronized void write(byte[] from, int offset, int length) throws IOException {
    checkOpen();
    if (offset < 0 || length < 0 || length > from.length - offset) {
      throw new IndexOutOfBoundsException(offset + " + " + length + " of " + from.length);
    }
    int done = 0;
    while (done < length) {
      int bytes = Math.min(length - done, gathered.remaining());
      gathered.put(from, offset + done, bytes);
      done += bytes;
      if (!gathered.hasRemaining()) {
        drain();
      }
    }
    statistics.incrementBytesWritten(length);
  }

  @Override
  public synchronized void flush() throws IOException {
    checkOpen();
    drain();
  }

  @Override
  public synchronized void hflush() throws IOException {
    checkOpen();
    drain();
    orFail(() -> Native.flush(file));
  }

  @Override
  public synchronized void hsync() throws IOException {
    checkOpen();
    drain();
    orFail(() -> Native.sync(file));
  }

  @Override
  public synchronized void close() throws IOException {
    if (gathered == null) {
      return;
    }
    try {
      checkOpen();
      drain();
    } catch (IOException | RuntimeException | Error e) {
      try {
        Native.close(file);
      } catch (IOException | RuntimeException second) {
        e.addSuppressed(second);
      }
      throw e;
    } finally {
      DirectBuffers.give(gathered);
      gathered = null;
    }
    Native.close(file);
  }

  @Override
  public boolean hasCapability(String capability) {
    switch (capability.toLowerCase(Locale.ROOT)) {
      case StreamCapabilities.HFLUSH:
      case StreamCapabilities.HSYNC:
        return true;
      default:
        return false;
    }
  }
}
